"""Write, append to and truncate files."""

from way import TREE, attempt, sees

KIND = "files"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    (TREE / "work/kept.txt").write_text("EVIL")
    with (TREE / "work/log.csv").open("a") as log:
        log.write("1\n")
    (TREE / "work/long.bin").open("r+b").truncate(3)
    sees(TREE / "work/kept.txt", "EVIL")
    sees(TREE / "work/log.csv", "0\n1\n")


attempt(do)
