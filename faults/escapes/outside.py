"""The job that must not notice a rehearsal beside it: files, shared memory, queues, sockets and processes.

Prints its names as one line of JSON. For each line on its input, it prints its state as one line of JSON.
"""

import ctypes
import hashlib
import json
import os
import resource
import secrets
import socket
import stat
import sys
import threading
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
LIBC.sem_open.restype = ctypes.c_void_p

FILES = {
    "work/kept.txt": "kept\n",
    "work/log.csv": "0\n",
    "work/directory/inner.txt": "inner\n",
    "work/long.bin": "x" * 65536,
    "home/.config/settings": "mine\n",
}


class Job:
    def __init__(self, tree: Path) -> None:
        self.tree = tree
        for name, text in FILES.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        token = secrets.token_hex(6)
        self.shared_memory = Path(f"/dev/shm/escape-{token}")
        self.shared_memory.write_bytes(b"cache" * 100)
        self.semaphore = f"escape-{token}"
        self.semaphore_address = LIBC.sem_open(
            f"/{self.semaphore}".encode(), os.O_CREAT | os.O_EXCL, 0o600, 3
        )
        self.key = secrets.randbelow(1 << 30) + 1
        self.segment = LIBC.shmget(self.key, 4096, 0o1600)
        self.address = LIBC.shmat(self.segment, None, 0)
        ctypes.memmove(self.address, b"segment", 7)
        self.queue = f"/escape-{token}"
        self.queue_descriptor = LIBC.mq_open(
            self.queue.encode(), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600, None
        )
        self.posts = 0
        self.connections = 0
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.path = tree / "service.sock"
        self.unix = self.listen(str(self.path))
        self.abstract_name = f"escape-{token}"
        self.abstract = self.listen(f"\0{self.abstract_name}")
        for listener, counts in (
            (self.tcp, "posts"),
            (self.unix, "connections"),
            (self.abstract, "connections"),
        ):
            threading.Thread(target=self.accept, args=(listener, counts), daemon=True).start()

    def listen(self, address: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen()
        return listener

    def accept(self, listener: socket.socket, counts: str) -> None:
        while True:
            connection, _ = listener.accept()
            setattr(self, counts, getattr(self, counts) + 1)
            connection.close()

    def names(self) -> dict[str, str]:
        return {
            "ESCAPE_TREE": str(self.tree),
            "ESCAPE_PID": str(os.getpid()),
            "ESCAPE_SHARED_MEMORY": self.shared_memory.name,
            "ESCAPE_SEMAPHORE": self.semaphore,
            "ESCAPE_SEGMENT": str(self.key),
            "ESCAPE_QUEUE": self.queue,
            "ESCAPE_PORT": str(self.tcp.getsockname()[1]),
            "ESCAPE_SOCKET": str(self.path),
            "ESCAPE_ABSTRACT": self.abstract_name,
        }

    def state(self) -> dict[str, object]:
        waiting = ctypes.c_int()
        LIBC.sem_getvalue(ctypes.c_void_p(self.semaphore_address), ctypes.byref(waiting))
        return {
            "files": self.files(),
            "shared_memory": self.shared_memory.exists() and digest(self.shared_memory.read_bytes()),
            "semaphore": [waiting.value, Path(f"/dev/shm/sem.{self.semaphore}").exists()],
            "segment": [
                ctypes.string_at(self.address, 7).decode(),
                LIBC.shmget(self.key, 0, 0) == self.segment,
            ],
            "queue": queue_attributes(self.queue_descriptor),
            "posts": self.posts,
            "connections": self.connections,
            "host_name": socket.gethostname(),
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "affinity": sorted(os.sched_getaffinity(0)),
            "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
            "oom": Path("/proc/self/oom_score_adj").read_text(),
            "panic": Path("/proc/sys/kernel/panic").read_text(),
        }

    def files(self) -> list[list[object]]:
        found = []
        for path in sorted(self.tree.rglob("*")):
            facts = path.lstat()
            content = digest(path.read_bytes()) if stat.S_ISREG(facts.st_mode) else None
            attributes = os.listxattr(path, follow_symlinks=False)
            name = str(path.relative_to(self.tree))
            found.append(
                [
                    name,
                    facts.st_mode,
                    facts.st_uid,
                    facts.st_gid,
                    facts.st_mtime_ns,
                    facts.st_nlink,
                    content,
                    attributes,
                ]
            )
        return found

    def remove(self) -> None:
        self.shared_memory.unlink(missing_ok=True)
        LIBC.sem_unlink(f"/{self.semaphore}".encode())
        LIBC.shmctl(self.segment, 0, None)
        LIBC.mq_unlink(self.queue.encode())


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def queue_attributes(descriptor: int) -> list[int]:
    attributes = (ctypes.c_long * 8)()
    LIBC.mq_getattr(descriptor, ctypes.byref(attributes))
    return list(attributes[:4])


if __name__ == "__main__":
    job = Job(Path(sys.argv[1]))
    try:
        print(json.dumps(job.names()), flush=True)
        for _ in sys.stdin:
            print(json.dumps(job.state()), flush=True)
    finally:
        job.remove()
