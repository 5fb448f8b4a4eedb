"""Where the hook writes: one memory-mapped page for figures, one file of JSON lines for what happened.

Nothing here waits for anybody: no thread, no socket, no lock. The layout of the page is told in `gauge.rs`.
"""

import mmap
import os
import sys
import time

DIRECTORY = os.environ.get("BRIMFUL_INSIDE", "")
GAUGES = os.environ.get("BRIMFUL_GAUGES", "")
TRACE_ALLOCATIONS = os.environ.get("BRIMFUL_TRACE_ALLOCATIONS", "") == "1"

SIZE = 4096
MAGIC = int.from_bytes(b"brimgaug", "little")
VERSION = 1
# Places of the words.
SEQUENCE, PID, STEPS, CHECKSUM = 2, 3, 4, 5
EPOCHS, DEVICE, ALLOCATED, RESERVED, PEAK_ALLOCATED, PEAK_RESERVED, RETRIES, OOMS, N_WORKERS = range(6, 15)
WORKERS = 16
MAX_WORKERS = SIZE // 8 - WORKERS

MAX_LINES = 200
# Of these, kept for what ends a process.
LAST_LINES = 10
MAX_TEXT = 4096
WHOLE = (1 << 64) - 1


def guarded(function):
    """A mistake in here must not reach the script.

    What stops the script (KeyboardInterrupt, SystemExit) passes.
    """

    def wrapper(*arguments, **named):
        try:
            return function(*arguments, **named)
        except Exception:
            return None

    return wrapper


def started_ns():
    try:
        return int(os.environ.get("BRIMFUL_STARTED_NS", ""))
    except ValueError:
        return time.monotonic_ns()


STARTED_NS = started_ns()


def at_ms():
    return max(0, time.monotonic_ns() - STARTED_NS) // 1_000_000


def text(value, most=MAX_TEXT):
    """As JSON can carry it: whatever it is, valid Unicode and short."""
    return str(value)[:most].encode("utf-8", "replace").decode("utf-8")


def count(value, most=WHOLE):
    """A whole number from 0, or nothing."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= most else None


class Page:
    """What this process tells. A forked child starts anew, with a page once it has something to say."""

    def __init__(self):
        self.forget()

    def forget(self):
        self.words = None  # the page as 64-bit words, once it is open
        self.mapped = None
        self.tried = False
        self.lines = 0
        self.announced = False
        self.announcement = None

    # --- the gauge ---

    def open(self):
        """The words of this process's page, or None."""
        if self.tried:
            return self.words
        self.tried = True
        self.announce()
        self.words = self.map()
        return self.words

    @guarded
    def map(self):
        if not GAUGES or sys.byteorder != "little":
            return None
        pid = os.getpid()
        path = os.path.join(GAUGES, str(pid) + ".gauge")
        # Never cut short a file that may be mapped: touching such a page would end the process.
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            # The whole page is written before it is mapped: a full disk is noticed here, not while training.
            if os.write(handle, bytes(SIZE)) != SIZE:
                return None
            self.mapped = mmap.mmap(handle, SIZE)
        finally:
            os.close(handle)
        words = memoryview(self.mapped).cast("Q")
        words[1] = VERSION
        words[PID] = pid
        words[0] = MAGIC
        return words

    @guarded
    def put(self, values, workers=None):
        """Change words (place -> value), so that a reader sees all of them or none.

        The count of steps is not among them: it is stored alone, in one piece. A reader trusts the checksum,
        not the order of the stores: Python has no memory barriers.
        """
        words = self.open()
        if words is None:
            return
        sequence = words[SEQUENCE] | 1
        words[SEQUENCE] = sequence
        for place, value in values.items():
            words[place] = min(max(0, int(value)), WHOLE)
        if workers is not None:
            workers = workers[:MAX_WORKERS]
            for place, (pid, loader, worker) in enumerate(workers, WORKERS):
                words[place] = pid << 32 | min(loader, 0xFFFF) << 16 | min(worker, 0xFFFF)
            words[N_WORKERS] = len(workers)
        total = sum(words[EPOCHS : N_WORKERS + 1]) + sum(words[WORKERS : WORKERS + words[N_WORKERS]])
        words[CHECKSUM] = (total ^ sequence + 1) & WHOLE
        words[SEQUENCE] = sequence + 1

    # --- the lines ---

    def announce(self):
        """The first line of a process: its torch."""
        if not self.announced and self.announcement is not None:
            self.announced = True
            self.tell("torch", self.announcement)

    @guarded
    def tell(self, kind, facts, *, last=False):
        self.announce()
        if self.lines >= (MAX_LINES if last else MAX_LINES - LAST_LINES):
            return
        self.lines += 1
        import json

        pid = os.getpid()
        line = {"kind": kind, "at_ms": at_ms(), "pid": pid}
        line.update(facts)
        encoded = (json.dumps(line) + "\n").encode("ascii")
        path = os.path.join(DIRECTORY, "events", str(pid) + ".jsonl")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open(path, flags, 0o600)
        try:
            os.write(handle, encoded)
        finally:
            os.close(handle)


page = Page()
