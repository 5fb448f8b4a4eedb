"""Change shared memory by a system call of one's own."""

import os

from way import LIBC, SHARED_MEMORY, attempt, checked

KIND = "shared memory"
EXPECTED = {"overlay": "absent", "redirect": "denied"}
OPENAT = {"x86_64": 257, "aarch64": 56}[os.uname().machine]

path = f"/dev/shm/{SHARED_MEMORY}".encode()
attempt(lambda: os.write(checked(LIBC.syscall(OPENAT, -100, path, os.O_RDWR)), b"EVIL"))
