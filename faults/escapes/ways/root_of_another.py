"""Reach the files through the root and the working directory of another process."""

from pathlib import Path

from way import PID, TREE, all_of, attempt

KIND = "files"
EXPECTED = {"overlay": "absent", "redirect": "done|denied"}

through_root = Path(f"/proc/{PID}/root") / str(TREE / "work/kept.txt").lstrip("/")
attempt(all_of(lambda: through_root.write_text("EVIL")))
