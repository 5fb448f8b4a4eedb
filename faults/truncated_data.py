"""Reads a memory-mapped data file that was cut short. Dies of SIGBUS, which is not always shared memory."""

import mmap
import os
import tempfile

with tempfile.TemporaryFile() as file:
    file.truncate(8 << 20)
    data = mmap.mmap(file.fileno(), 8 << 20)
    os.truncate(file.fileno(), 4096)
    print("reading", flush=True)
    print(data[4 << 20])
