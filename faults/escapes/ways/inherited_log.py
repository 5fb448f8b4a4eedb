"""Write to and empty a log that the shell had opened."""

import os

from way import attempt

KIND = "descriptors and terminal"
EXPECTED = {"overlay": "done", "redirect": "done"}
LOG = 7


def do() -> None:
    os.write(LOG, b"EVIL")
    os.ftruncate(LOG, 0)
    os.truncate(f"/dev/fd/{LOG}", 0)


attempt(do)
