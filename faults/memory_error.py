"""Reads a corpus into a list under a limit on address space (`ulimit -v`). Dies with a bare MemoryError."""

lines = []
while True:
    lines.append(bytearray(8 << 20))
