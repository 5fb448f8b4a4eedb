"""Take and remove another program's semaphore."""

import ctypes

from way import LIBC, SEMAPHORE, attempt, checked

KIND = "shared memory"
EXPECTED = {"overlay": "absent", "redirect": "done"}
LIBC.sem_open.restype = ctypes.c_void_p


def do() -> None:
    name = f"/{SEMAPHORE}".encode()
    semaphore = LIBC.sem_open(name, 0)
    checked(-1 if semaphore is None else 0)
    checked(LIBC.sem_wait(ctypes.c_void_p(semaphore)))
    checked(LIBC.sem_unlink(name))


attempt(do)
