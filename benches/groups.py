"""Control groups for measuring: what all processes of a command use, and a limit that kills them.

Works with v2 and with v1 (memory and cpuacct). Needs the right to make control groups (root).
"""

import contextlib
import pathlib
import subprocess
import time

ROOT = pathlib.Path("/sys/fs/cgroup")


class Group:
    """One control group with a memory limit, or with none."""

    def __init__(self, name, limit=None):
        self._name_folders(name)
        self.memory.mkdir()
        if self.processors != self.memory:
            # Without a cpuacct controller everything but `cpu_seconds` works.
            with contextlib.suppress(OSError):
                self.processors.mkdir()
        if limit is not None:
            file = "memory.max" if self.v2 else "memory.limit_in_bytes"
            (self.memory / file).write_text(str(limit))

    @classmethod
    def existing(cls, name):
        """The group of that name that somebody else has made and will remove."""
        group = cls.__new__(cls)
        group._name_folders(name)
        return group

    def _name_folders(self, name):
        self.v2 = (ROOT / "cgroup.subtree_control").exists()
        self.memory = (ROOT if self.v2 else ROOT / "memory") / name
        self.processors = self.memory if self.v2 else ROOT / "cpuacct" / name

    def folders(self):
        """The group's folders that are there: one, or one for each controller."""
        return [folder for folder in {self.memory, self.processors} if folder.is_dir()]

    def start(self, command, **named):
        """Start a command inside of the group."""
        join = 'for one in $0; do echo 0 > "$one/cgroup.procs" || exit; done; exec "$@"'
        folders = " ".join(map(str, self.folders()))
        return subprocess.Popen(["/bin/sh", "-c", join, folders, *command], **named)

    def run(self, command, *, timeout, **named):
        """Run a command inside of the group; its exit code and what it said."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
        with self.start(command, **pipes, **named) as started:
            try:
                out, err = started.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                started.kill()
                raise
        return started.returncode, out, err

    def use(self):
        """Return anonymous and shared bytes."""
        found = fields(self.memory / "memory.stat")
        if self.v2:
            return found["anon"], found["shmem"]
        return found["total_rss"], found["total_shmem"]

    def cpu_seconds(self):
        """User and system time of all processes that were ever in the group."""
        if self.v2:
            return fields(self.processors / "cpu.stat")["usage_usec"] / 1e6
        return int((self.processors / "cpuacct.usage").read_text()) / 1e9

    def kills(self):
        """How many processes the kernel killed for the limit."""
        file = "memory.events" if self.v2 else "memory.oom_control"
        return fields(self.memory / file).get("oom_kill", 0)

    def end(self):
        """Kill what is left in the group."""
        for _ in range(50):
            left = (self.memory / "cgroup.procs").read_text().split()
            if not left:
                return
            subprocess.run(["/bin/kill", "-9", *left], stderr=subprocess.DEVNULL, check=False)
            time.sleep(0.02)

    def remove(self):
        """The kernel refuses while a killed process is still being taken apart."""
        for _ in range(500):
            left = self.folders()
            if not left:
                return
            for folder in left:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            time.sleep(0.02)


def fields(path):
    """The numbers of a file with a name and a number in each line."""
    return {name: int(number) for name, number in (line.split() for line in path.read_text().splitlines())}
