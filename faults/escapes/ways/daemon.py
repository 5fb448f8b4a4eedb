"""Leave a daemon behind that writes later."""

import os
import time

from way import TREE, attempt

KIND = "processes"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(2)
            (TREE / "work/kept.txt").write_text("EVIL")
            os._exit(0)
        os._exit(0)


attempt(do)
