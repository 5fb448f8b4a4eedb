"""Mount over the user's files, move mounts, and look below them."""

from way import LIBC, TREE, all_of, attempt, checked

KIND = "machine"
EXPECTED = {"overlay": "done|denied", "redirect": "denied"}
MS_BIND, MS_MOVE, MNT_DETACH = 4096, 8192, 2
work, home = str(TREE / "work").encode(), str(TREE / "home").encode()


def write_below() -> None:
    (TREE / "home/.config/settings").write_text("EVIL")


attempt(
    all_of(
        lambda: checked(LIBC.mount(b"tmpfs", work, b"tmpfs", 0, None)),
        lambda: checked(LIBC.mount(home, work, None, MS_BIND, None)),
        lambda: checked(LIBC.umount2(work, MNT_DETACH)),
        write_below,
    )
)
