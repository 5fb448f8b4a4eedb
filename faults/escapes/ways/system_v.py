"""Write into a System V segment, and remove it."""

import ctypes

from way import LIBC, SEGMENT, attempt, checked

KIND = "queues and System V memory"
EXPECTED = {"overlay": "absent", "redirect": "denied"}
LIBC.shmat.restype = ctypes.c_void_p


def do() -> None:
    segment = checked(LIBC.shmget(SEGMENT, 4096, 0o600))
    ctypes.memmove(LIBC.shmat(segment, None, 0), b"EVIL", 4)
    checked(LIBC.shmctl(segment, 0, None))


attempt(do)
