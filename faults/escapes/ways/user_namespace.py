"""Enter a user namespace, where one may mount, and write to the files there."""

from way import LIBC, TREE, attempt, checked

KIND = "machine"
EXPECTED = {"overlay": "done|denied", "redirect": "done|denied"}
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000


def do() -> None:
    checked(LIBC.unshare(NEW_USER | NEW_MOUNTS))
    checked(LIBC.mount(b"tmpfs", str(TREE / "home").encode(), b"tmpfs", 0, None))
    checked(LIBC.umount2(str(TREE / "home").encode(), 2))
    (TREE / "work/kept.txt").write_text("EVIL")
    assert (TREE / "home/.config/settings").exists()


attempt(do)
