"""Write past the page cache."""

import mmap
import os

from way import TREE, attempt, opened

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    buffer = mmap.mmap(-1, 4096)
    buffer[:4] = b"EVIL"
    with opened(TREE / "work/long.bin", os.O_WRONLY | os.O_DIRECT) as file:
        os.write(file, buffer)


attempt(do)
