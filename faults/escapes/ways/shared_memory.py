"""Change and remove shared memory by its name."""

from multiprocessing import shared_memory

from way import SHARED_MEMORY, attempt

KIND = "shared memory"
EXPECTED = {"overlay": "absent", "redirect": "done"}


def do() -> None:
    cache = shared_memory.SharedMemory(name=SHARED_MEMORY)
    cache.buf[:4] = b"EVIL"
    cache.close()
    cache.unlink()


attempt(do)
