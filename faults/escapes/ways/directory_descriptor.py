"""Open a file below a directory's descriptor, and through /proc/self/fd."""

import os
from pathlib import Path

from way import TREE, attempt, opened

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    with opened(TREE / "work", os.O_RDONLY | os.O_DIRECTORY) as directory:
        file = os.open("kept.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=directory)
        os.write(file, b"EVIL")
        os.close(file)
        Path(f"/proc/self/fd/{directory}/log.csv").write_text("EVIL")


attempt(do)
