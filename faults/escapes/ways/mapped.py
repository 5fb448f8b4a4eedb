"""Change a file through shared memory mapped from it."""

import mmap

from way import TREE, attempt

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    with (TREE / "work/long.bin").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:4] = b"EVIL"
        mapped.flush()
    assert (TREE / "work/long.bin").read_bytes()[:4] == b"EVIL"


attempt(do)
