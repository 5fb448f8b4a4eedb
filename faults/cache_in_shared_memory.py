"""Copies its dataset into /dev/shm "to keep it off the memory".

Dies of the container's limit: files there are memory, charged to the container, though no process seems to
hold them.
"""

from pathlib import Path

block = b"x" * (4 << 20)
with Path("/dev/shm/dataset").open("wb") as file:  # noqa: S108 - the point
    while True:
        file.write(block)
