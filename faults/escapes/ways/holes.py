"""Punch a hole, and allocate."""

import os

from way import LIBC, TREE, attempt, checked, opened

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    with opened(TREE / "work/long.bin", os.O_RDWR) as file:
        checked(LIBC.fallocate(file, 3, 0, 4096))
        os.posix_fallocate(file, 0, 131072)


attempt(do)
