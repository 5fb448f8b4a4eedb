"""Write into a pipe that the shell had opened, and read its standard input."""

import os

from way import attempt

KIND = "descriptors and terminal"
EXPECTED = {"overlay": "done", "redirect": "done"}
PIPE = 9


def do() -> None:
    os.write(PIPE, b"EVIL\n")
    assert os.read(0, 100) == b""


attempt(do)
