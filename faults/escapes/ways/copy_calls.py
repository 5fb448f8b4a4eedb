"""Write by calls that copy inside of the kernel."""

import os

from way import TREE, attempt, opened

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    with (
        opened(TREE / "work/kept.txt", os.O_RDWR) as target,
        opened(TREE / "work/long.bin", os.O_RDONLY) as source,
    ):
        os.copy_file_range(source, target, 100)
        os.sendfile(target, source, 0, 100)
        read_end, write_end = os.pipe()
        os.write(write_end, b"EVIL")
        os.splice(read_end, target, 4)


attempt(do)
