"""Change and remove shared memory by its path."""

from pathlib import Path

from way import SHARED_MEMORY, attempt

KIND = "shared memory"
EXPECTED = {"overlay": "absent", "redirect": "done"}


def do() -> None:
    path = Path("/dev/shm") / SHARED_MEMORY
    assert path.read_bytes()[:5] == b"cache"
    path.write_bytes(b"EVIL")
    path.unlink()
    assert not path.exists()


attempt(do)
