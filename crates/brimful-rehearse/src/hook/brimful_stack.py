"""Where the script is while it makes no step, and where native code ends it, for the messages about both.

The stacks are read by a thread that holds the interpreter's lock. `faulthandler.dump_traceback_later` reads
them without it, from frames that other threads are changing, and ends a script that calls functions in the
meantime by a segmentation fault (cpython issues 116008, 131580 and 140815). The price: while native code
holds the lock no stack can be read, and the message then names no line.
"""

import _thread
import contextlib
import faulthandler
import os
import signal
import sys
import time

from brimful_common import FOLDER, open_private

# Those that `faulthandler` knows.
CRASHES = (signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)


def can_read_stacks():
    """Whether this interpreter stops its threads while their stacks are read.

    The lock does that, if there is one. A free-threaded Python does it itself since 3.13.2 (cpython issue
    128400).
    """
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    return has_lock or sys.version_info >= (3, 13, 2)


def report_crashes():
    """Have Python print its stack to stderr when native code crashes, as `python -X faulthandler` does.

    Without the stack in C: to collect it allocates memory, which may wait without end after a crash in
    `malloc`.
    """
    named = {"c_stack": False} if sys.version_info >= (3, 14) else {}
    if not faulthandler.is_enabled() and not handles_crashes():
        faulthandler.enable(2, all_threads=False, **named)


def handles_crashes():
    """Whether a library catches such signals already, as a Java virtual machine does for its own use."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        caught = next(line for line in status if line.startswith("SigCgt:"))
    mask = int(caught.split()[1], 16)
    return any(mask >> number - 1 & 1 for number in CRASHES)


class StackReporter:
    """Writes down the stacks of this process from time to time, as long as it makes no step."""

    # Seconds without a step before the first stacks are written, and from one time to the next.
    INTERVAL = 15

    def __init__(self):
        self.pid = None
        self.path = None
        self.stopped = None
        self.stepped_at = 0.0
        self.has_written = False

    def start(self):
        with contextlib.suppress(OSError, RuntimeError, StopIteration, ValueError):
            report_crashes()
        if not can_read_stacks():
            return
        self.pid = os.getpid()
        self.path = os.path.join(FOLDER, f"{self.pid}.stack")
        self.stepped_at = time.monotonic()
        self.stopped = _thread.allocate_lock()
        self.stopped.acquire()
        try:
            # Not by `threading`, in whose lists the script would find a thread that it did not start.
            _thread.start_new_thread(self.watch, ())
        except RuntimeError:
            self.pid = None  # the limit of threads is reached

    def is_own(self):
        # A forked process has no such thread.
        return self.pid == os.getpid()

    def watch(self):
        # The script's signals are for its own threads.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        seconds = self.INTERVAL
        while not self.stopped.acquire(timeout=seconds):
            quiet = time.monotonic() - self.stepped_at
            seconds = self.INTERVAL
            if quiet < self.INTERVAL:
                seconds -= quiet
                continue
            try:
                self.write()
            except (OSError, RuntimeError, ValueError):
                return

    def write(self):
        # Opened each time: a script may close descriptors that it does not know, and use their numbers again.
        part = self.path + ".part"
        descriptor = open_private(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            faulthandler.dump_traceback(descriptor, all_threads=True)
        finally:
            os.close(descriptor)
        os.replace(part, self.path)
        self.has_written = True

    def after_step(self):
        """Forget where the script was: it has come further."""
        if not self.is_own():
            return
        self.stepped_at = time.monotonic()
        if self.has_written:
            self.has_written = False
            self.remove()

    def stop(self):
        if self.is_own():
            self.pid = None
            self.stopped.release()
            self.remove()

    def remove(self):
        with contextlib.suppress(OSError):
            os.remove(self.path)
