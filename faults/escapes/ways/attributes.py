"""Change mode, times and extended attributes."""

import os

from way import TREE, attempt

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    path = TREE / "work/kept.txt"
    path.chmod(0o600)
    os.utime(path, (1, 1))
    os.chown(path, os.getuid(), os.getgid())
    os.setxattr(path, "user.note", b"EVIL")
    assert path.stat().st_mtime == 1


attempt(do)
