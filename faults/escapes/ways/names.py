"""Rename, link, remove, and remove a tree."""

import os
import shutil

from way import TREE, attempt

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    work = TREE / "work"
    (work / "kept.txt").rename(work / "moved.txt")
    (work / "moved.txt").rename(work / "directory/moved.txt")
    os.link(work / "log.csv", work / "linked.csv")
    (work / "link").symlink_to(TREE / "home")
    (work / "link/.config/settings").write_text("EVIL")
    (work / "long.bin").unlink()
    shutil.rmtree(work / "directory")
    assert not (work / "directory").exists()


attempt(do)
