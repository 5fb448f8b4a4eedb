"""What every way out shares: what is outside, and how a way says how it ended."""

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

DONE, DENIED, ABSENT, SKIPPED = 40, 41, 42, 43

LIBC = ctypes.CDLL(None, use_errno=True)
TREE = Path(os.environ["ESCAPE_TREE"])
PID = int(os.environ["ESCAPE_PID"])
SHARED_MEMORY = os.environ["ESCAPE_SHARED_MEMORY"]
SEMAPHORE = os.environ["ESCAPE_SEMAPHORE"]
SEGMENT = int(os.environ["ESCAPE_SEGMENT"])
QUEUE = os.environ["ESCAPE_QUEUE"]
PORT = int(os.environ["ESCAPE_PORT"])
SOCKET = os.environ["ESCAPE_SOCKET"]
ABSTRACT = "\0" + os.environ["ESCAPE_ABSTRACT"]


def checked(result: int) -> int:
    """The result of a C function; an `OSError` if it is -1."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def attempt(do: Callable[[], object]) -> None:
    """End with what became of it."""
    try:
        do()
    except OSError as error:
        print(error)
        gone = (errno.ENOENT, errno.ESRCH, errno.ECONNREFUSED, errno.ENXIO, errno.EBADF, errno.ENODEV)
        sys.stdout.flush()
        os._exit(ABSENT if error.errno in gone else DENIED)
    sys.stdout.flush()
    os._exit(DONE)


def skip(why: str) -> None:
    print(why)
    sys.stdout.flush()
    os._exit(SKIPPED)


def needs(condition: object, why: str) -> None:
    if not condition:
        skip(why)


def all_of(*steps: Callable[[], object]) -> Callable[[], None]:
    """Every step is tried; the first error counts."""

    def run() -> None:
        first = None
        for step in steps:
            try:
                step()
            except OSError as error:
                first = first or error
        if first is not None:
            raise first

    return run


def sees(path: Path, text: str) -> None:
    """The program must see its own changes."""
    assert path.read_text() == text, path.read_text()


@contextlib.contextmanager
def opened(path: str | Path, flags: int) -> object:
    descriptor = os.open(path, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
