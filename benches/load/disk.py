"""What the disk gives to anybody: direct reads of a megabyte at random places, and nothing else.

python benches/load/disk.py FILE [--threads 2,4] [--rounds 5]

Takes turns between the numbers of threads; a line for each round, and the one in the middle.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path

PIECE = 1 << 20


def main() -> int:
    """Read, and tell how fast."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--threads", default="2,4", help="numbers of threads, with commas between them")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    counts = [int(count) for count in given.threads.split(",")]
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(given.rounds):
        for count in counts:
            rates[count].append(_rate(given.file, count))
            print(f"{count} threads: {rates[count][-1]:.2f} GB/s", flush=True)
    for count, found in rates.items():
        middle = statistics.median(found)
        print(f"{count} threads: {middle:.2f} GB/s in the middle, {min(found):.2f} to {max(found):.2f}")
    return 0


def _rate(path: Path, n_threads: int) -> float:
    """Return the GB/s at which the whole file is read once, in random order."""
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    places = list(range(0, os.fstat(file).st_size - PIECE + 1, PIECE))
    random.shuffle(places)
    if not places:
        raise SystemExit(f"expected a file of at least {PIECE} bytes, found {path}")
    # What is in the page cache would be read from there.
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    def read(own: list[int]) -> None:
        # A map begins at a page, as direct reads want it.
        with mmap.mmap(-1, PIECE) as memory:
            for place in own:
                os.preadv(file, [memory], place)

    threads = [threading.Thread(target=read, args=(places[first::n_threads],)) for first in range(n_threads)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - began
    os.close(file)
    return len(places) * PIECE / seconds / 1e9


if __name__ == "__main__":
    sys.exit(main())
