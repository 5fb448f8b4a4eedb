"""Runs a random sequence of file operations and prints what it saw, one JSON value per line.

``actor.py ROOT SEED OPERATIONS``: the sequence depends on the seed only, so that a plain run and a
redirected one can be compared line by line. ``BRANCH`` names a directory for new layers; without it a branch
does nothing.
"""

import ctypes
import errno
import glob
import json
import mmap
import os
import random
import shutil
import stat
import sys
import tempfile
from typing import IO

ROOT = ""
NAMES = ["a", "b", "c", "d", "e.txt", "long name", "\u00fc"]
OLD = 1_500_000_000
LIBC = ctypes.CDLL(None, use_errno=True)


def path(rng: random.Random, *, deep: int = 3) -> str:
    parts = [rng.choice(NAMES) for _ in range(rng.randint(1, deep))]
    kind = rng.random()
    if kind < 0.06:
        parts.insert(rng.randint(0, len(parts)), "..")
    elif kind < 0.12:
        parts.insert(rng.randint(0, len(parts)), ".")
    elif kind < 0.16:
        parts.append("")
    elif kind < 0.18:
        parts.insert(rng.randint(0, len(parts)), "")
    text = "/".join(parts)
    if rng.random() < 0.02:
        text = rng.choice(["", "x" * 300, ".", "..", "/", "a/" * 2100, "nowhere/x", "a\udcff"])
    if text.startswith("/") or rng.random() < 0.6 or not text:
        return text.lstrip("/") if text != "/" else "."
    return f"{ROOT}/{text}"


def open_now(name: str, mode: str = "r", encoding: str | None = None) -> IO:
    """Opens a file without waiting for the other end of a pipe."""
    return open(
        name, mode, encoding=encoding, opener=lambda n, flags: os.open(n, flags | os.O_NONBLOCK, 0o666)
    )


def shown(status: os.stat_result) -> list:
    kind = stat.S_IFMT(status.st_mode)
    is_directory = kind == stat.S_IFDIR
    return [
        oct(status.st_mode),
        None if is_directory else status.st_nlink,
        None if is_directory or kind == stat.S_IFLNK else status.st_size,
        status.st_mtime_ns if status.st_mtime < OLD and kind != stat.S_IFLNK else "now",
        status.st_uid,
    ]


def entry_of(full: str) -> list:
    status = os.lstat(full)
    entry = [full, *shown(status)]
    if stat.S_ISLNK(status.st_mode):
        entry.append(os.readlink(full))
    elif stat.S_ISREG(status.st_mode):
        entry.append(sorted(x for x in os.listxattr(full) if x.startswith("user.")))
        with open_now(full, "rb") as file:
            entry.append(file.read().decode("latin-1"))
    return entry


def snapshot(top: str) -> list:
    found = []
    for directory, directories, files in os.walk(top):
        directories.sort()
        found.append([directory, *shown(os.lstat(directory))])
        for name in sorted(files + [d for d in directories if os.path.islink(os.path.join(directory, d))]):
            full = os.path.join(directory, name)
            try:
                found.append(entry_of(full))
            except OSError as error:
                found.append([full, error.errno])
    return found


def write(rng: random.Random) -> object:
    mode = rng.choice(["w", "a", "x", "r+", "w+", "a+", "rb+", "wb"])
    name, data = path(rng), f"data {rng.random()}"
    with open_now(name, mode) as file:
        file.write(data.encode() if "b" in mode else data)
        file.flush()
        return [os.fstat(file.fileno()).st_size, file.tell()]


def read(rng: random.Random) -> object:
    with open_now(path(rng), encoding="latin-1") as file:
        return file.read()


def raw_open(rng: random.Random) -> object:
    flags = rng.choice([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
    for flag in (os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND, os.O_DIRECTORY, os.O_NOFOLLOW):
        if rng.random() < 0.3:
            flags |= flag
    mode = rng.choice([0o666, 0o600, 0o444, 0o755])
    if flags & os.O_CREAT:
        # What that means has changed between kernels.
        flags &= ~os.O_DIRECTORY
    fd = os.open(path(rng), flags | os.O_NONBLOCK, mode)
    try:
        if flags & 3 and not stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"raw")
        return shown(os.fstat(fd))
    finally:
        os.close(fd)


def unnamed(rng: random.Random) -> object:
    fd = os.open(path(rng, deep=1), os.O_TMPFILE | os.O_RDWR, 0o644)
    try:
        os.write(fd, b"unnamed")
        os.link(f"/proc/self/fd/{fd}", path(rng), follow_symlinks=True)
        return shown(os.fstat(fd))
    finally:
        os.close(fd)


def rename_with_flags(rng: random.Random) -> object:
    names = [os.fsencode(path(rng)), os.fsencode(path(rng))]
    if LIBC.renameat2(-100, names[0], -100, names[1], rng.choice([0, 1, 2, 3])) != 0:
        raise OSError(ctypes.get_errno(), "")
    return None


def scan(rng: random.Random) -> object:
    with os.scandir(path(rng)) as entries:
        return sorted(
            [
                entry.name,
                entry.is_dir(),
                entry.is_file(),
                entry.is_symlink(),
                entry.is_dir(follow_symlinks=False),
            ]
            for entry in entries
        )


def through_directory(rng: random.Random) -> object:
    fd = os.open(path(rng, deep=2), os.O_RDONLY | os.O_DIRECTORY)
    name = rng.choice(NAMES)
    try:
        action = rng.randrange(9)
        if action == 0:
            new = os.open(name, os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd)
            os.write(new, b"through")
            os.close(new)
        elif action == 1:
            os.unlink(name, dir_fd=fd)
        elif action == 2:
            os.mkdir(name, dir_fd=fd)
        elif action == 3:
            os.rename(name, rng.choice(NAMES), src_dir_fd=fd, dst_dir_fd=fd)
        elif action == 4:
            os.rmdir(name, dir_fd=fd)
        elif action == 5:
            os.symlink(rng.choice(NAMES), name, dir_fd=fd)
        elif action == 6:
            return shown(os.stat(name, dir_fd=fd, follow_symlinks=rng.random() < 0.5))
        elif action == 7:
            os.chmod(fd, rng.choice([0o755, 0o700, 0o775]))
        else:
            os.utime(fd, (1_000_000_100, 1_000_000_200))
        return [sorted(os.listdir(fd)), os.path.samestat(os.fstat(fd), os.stat(fd))]
    finally:
        os.close(fd)


def inside_directory(rng: random.Random) -> object:
    os.chdir(path(rng, deep=2))
    try:
        name = rng.choice(NAMES)
        action = rng.randrange(4)
        if action == 0:
            with open_now(name, "a") as file:
                file.write("inside")
        elif action == 1:
            os.mkdir(name)
        elif action == 2:
            os.unlink(f"../{name}")
        return [os.getcwd(), sorted(os.listdir("."))]
    finally:
        os.chdir(ROOT)


def held(rng: random.Random) -> object:
    """A file that is open while its name changes."""
    name, other = path(rng), path(rng)
    with open_now(name, "r+") as file:
        file.write("held")
        file.flush()
        action = rng.randrange(4)
        try:
            if action == 0:
                os.rename(name, other)
            elif action == 1:
                os.unlink(name)
            elif action == 2:
                os.chmod(file.fileno(), 0o640)
            else:
                os.ftruncate(file.fileno(), 2)
        except OSError as error:
            return error.errno
        file.write("more")
        file.seek(0)
        return [file.read(), shown(os.fstat(file.fileno()))]


def mapped(rng: random.Random) -> object:
    with open_now(path(rng), "r+b") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return None
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[0:1] = b"M"
            return bytes(memory).decode("latin-1")


def through_read_only(rng: random.Random) -> object:
    name, mode, times = path(rng), rng.choice([0o600, 0o644, 0o664]), (1_000_000_300, 1_000_000_400)
    with open_now(name, "rb") as file:
        try:
            os.fchmod(file.fileno(), mode) if mode < 0o640 else os.utime(file.fileno(), times)
        except PermissionError:
            # A file that was renamed from below has no path that its descriptor would lead to.
            os.chmod(name, mode) if mode < 0o640 else os.utime(name, times)
    return shown(os.stat(name))


def attributes(rng: random.Random) -> object:
    name = path(rng)
    action = rng.randrange(3)
    if action == 0:
        os.setxattr(name, "user.test", b"value")
    elif action == 1:
        os.removexattr(name, "user.test")
    return sorted(x for x in os.listxattr(name) if x.startswith("user."))


def temporary(rng: random.Random) -> object:
    with tempfile.NamedTemporaryFile(dir=path(rng, deep=2)) as file:
        file.write(b"temporary")
        file.flush()
        return [os.path.exists(file.name), shown(os.stat(file.name))]


def copy_tree(rng: random.Random) -> object:
    try:
        shutil.copytree(path(rng), path(rng), symlinks=True)
    except shutil.Error:
        return "errors"
    return None


def walk(rng: random.Random) -> object:
    return [[d, sorted(ds), sorted(fs)] for d, ds, fs in sorted(os.walk(path(rng, deep=2)))]


def hard_link(rng: random.Random) -> object:
    os.link(path(rng), path(rng), follow_symlinks=rng.random() < 0.5)


def branch(_rng: random.Random) -> object:
    directory = os.environ.get("BRANCH")
    if directory:
        branch.count += 1
        if (
            branch.count <= 12
            and LIBC.brimful_redirect_branch(f"{directory}/layer-{branch.count}".encode()) != 0
        ):
            raise RuntimeError("branch failed")
    return None


branch.count = 0

OPERATIONS = [
    (6, write),
    (4, read),
    (4, raw_open),
    (1, unnamed),
    (3, lambda rng: shown(os.stat(path(rng)))),
    (3, lambda rng: shown(os.lstat(path(rng)))),
    (3, lambda rng: sorted(os.listdir(path(rng)))),
    (2, scan),
    (4, lambda rng: os.mkdir(path(rng), rng.choice([0o777, 0o755, 0o700, 0o500, 0o311]))),
    (1, lambda rng: os.makedirs(path(rng), exist_ok=rng.random() < 0.5)),
    (3, lambda rng: os.rmdir(path(rng))),
    (4, lambda rng: os.unlink(path(rng))),
    (5, lambda rng: os.rename(path(rng), path(rng))),
    (3, lambda rng: os.replace(path(rng), path(rng))),
    (2, rename_with_flags),
    (3, hard_link),
    (3, lambda rng: os.symlink(path(rng), path(rng))),
    (2, lambda rng: os.readlink(path(rng))),
    (2, lambda rng: os.chmod(path(rng), rng.choice([0o644, 0o600, 0o755, 0o700, 0o555, 0o444]))),
    (
        2,
        lambda rng: os.utime(
            path(rng), (1_000_000_000 + rng.randrange(99), 1_100_000_000 + rng.randrange(99))
        ),
    ),
    (1, lambda rng: os.utime(path(rng), (1_000_000_001, 1_000_000_002), follow_symlinks=False)),
    (2, lambda rng: os.truncate(path(rng), rng.choice([0, 3, 5000]))),
    (2, lambda rng: [os.access(path(rng), mode) for mode in (os.F_OK, os.R_OK, os.W_OK, os.X_OK)]),
    (2, lambda rng: os.path.realpath(path(rng))),
    (1, lambda rng: os.mkfifo(path(rng), 0o640)),
    (4, through_directory),
    (3, inside_directory),
    (2, held),
    (1, mapped),
    (2, through_read_only),
    (2, attributes),
    (1, temporary),
    # Not the directory that holds the root: what is left of the sequence would run nowhere.
    (1, lambda rng: shutil.rmtree(path(rng).replace("..", "."))),
    (1, copy_tree),
    (1, lambda rng: shutil.move(path(rng), path(rng))),
    (1, walk),
    (1, lambda rng: sorted(glob.glob(rng.choice(["*", "*/*", "**/e.txt"]), recursive=True))),
    (1, lambda rng: os.chown(path(rng), -1, os.getgid())),
    (1, lambda rng: os.stat(path(rng)).st_ino == os.stat(path(rng)).st_ino),
    (2, branch),
]


def hide(value: object) -> object:
    """What was seen, without where the tree lies."""
    text = json.dumps(value).replace(ROOT, "ROOT").replace(os.path.dirname(ROOT), "PARENT")
    return json.loads(text)


def main() -> None:
    global ROOT
    ROOT, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rng = random.Random(seed)
    # A file with two names below a branch loses one of them, so a sequence has branches or hard links.
    os.umask(rng.choice([0o022, 0o002, 0o077]))
    os.chdir(ROOT)
    functions = [
        function
        for weight, function in OPERATIONS
        for _ in range(weight)
        if function is not (branch if seed % 2 else hard_link)
    ]
    for number in range(count):
        function = rng.choice(functions)
        # One generator for each operation: how much it draws may depend on what it finds.
        own = random.Random(rng.random())
        label = f"{function.__name__}@{function.__code__.co_firstlineno}"
        try:
            result = function(own)
        except OSError as error:
            result = f"error {errno.errorcode.get(error.errno, error.errno)}"
        except (UnicodeError, ValueError, shutil.Error) as error:
            result = f"error {type(error).__name__}"
        print(json.dumps([number, label, hide(result)]), flush=True)
        print(json.dumps([number, "snapshot", hide(snapshot(ROOT))]), flush=True)


if __name__ == "__main__":
    main()
