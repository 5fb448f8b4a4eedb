"""A function or a command in a process of its own."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from brimful._errors import InputError, MachineError
from brimful._folders import temporary_place

if TYPE_CHECKING:
    import tempfile
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def function_directory(training: Callable[..., object]) -> Iterator[tuple[str, bytes]]:
    """Make a private directory for a function, and return it with the pickled function.

    The same function gets the same directory, so that its command is known again and what was measured of it
    helps the next plan.
    """
    import hashlib
    from pathlib import Path

    function = pickled(training)
    with private_directory() as directory:
        key = hashlib.sha256(function).hexdigest()[:16]
        named = Path(directory).with_name(f"brimful-{os.getuid()}-{key}")
        try:
            named.mkdir(mode=0o700)
        except OSError:
            # It is being run right now.
            yield directory, function
            return
        try:
            yield str(named), function
        finally:
            import shutil

            shutil.rmtree(named, ignore_errors=True)


def private_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory in which no other user can replace files."""
    import tempfile

    place = temporary_place()
    if place is None:
        raise MachineError(
            "another user could replace files in the temporary directory",
            ["set TMPDIR to a directory that only you can write to"],
        )
    return tempfile.TemporaryDirectory(prefix="brimful-", dir=place)


def installed(name: str) -> Path | None:
    """Find a program or library that came with this package."""
    import importlib.metadata
    from pathlib import Path

    if sys.platform != "linux":
        raise MachineError(
            f"the phantom GPU runs only on Linux, not on {sys.platform}",
            ["use a Linux container, WSL or a cloud machine, with or without a GPU"],
        )
    try:
        files = importlib.metadata.distribution("brimful").files or []
    except importlib.metadata.PackageNotFoundError as error:
        raise MachineError(
            "brimful is not installed; only its source is on the path",
            ["run `pip install brimful`"],
        ) from error
    for file in files:
        # Shell completions have the same name as the program.
        if file.name == name and file.parent.name in {"bin", "brimful"}:
            path = Path(os.fspath(file.locate()))
            if path.is_file():
                return path.resolve()
    return None


_RUNNER = """\
import os, pickle, sys
from multiprocessing import process, spawn
with open(os.path.join(os.path.dirname(__file__), "training"), "rb") as file:
    preparation = pickle.load(file)
    function = file.read()
# The preparation sets them to those of the process that called brimful.
words = sys.argv[1:]
# A script that starts processes while it is loaded lacks its guard: multiprocessing tells it so.
process.current_process()._inheriting = True
try:
    spawn.prepare(preparation)
finally:
    del process.current_process()._inheriting
pickle.loads(function)(*words)
"""


def pickled(training: Callable[..., object]) -> bytes:
    """Pickle a function for another process."""
    import pickle

    try:
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]

        return bytes(cloudpickle.dumps(training))
    except ImportError:
        try:
            return pickle.dumps(training)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"cannot pickle the function for another process: {error}",
                ["install cloudpickle, or move the function to a module"],
            ) from error


def command_for(training: Callable[..., object], directory: str) -> list[str]:
    """Write the function where a new process can load it, as multiprocessing's spawn does."""
    return command_of(pickled(training), getattr(training, "__name__", ""), directory)


def command_of(function: bytes, name: str, directory: str) -> list[str]:
    """Write a pickled function. Words that are added to the command are its arguments."""
    import pickle
    from multiprocessing import spawn
    from pathlib import Path

    preparation = spawn.get_preparation_data("brimful-rehearsal")
    preparation.pop("authkey", None)
    # A script that is read from standard input is named like a file and is none.
    if not Path(preparation.get("init_main_from_path") or "").is_file():
        preparation.pop("init_main_from_path", None)
    place = Path(directory)
    (place / "training").write_bytes(pickle.dumps(preparation) + function)
    # With a dash, so that no import finds it.
    script = place / f"call-{name if name.isidentifier() else 'function'}.py"
    script.write_text(_RUNNER, encoding="utf-8")
    return [sys.executable, str(script)]
