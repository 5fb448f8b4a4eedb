"""`brimful.watch()`: watches the memory of this process, such as the kernel of a notebook."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING

from brimful._child import installed
from brimful._errors import InputError, MachineError

if TYPE_CHECKING:
    from types import FrameType

# Ignored unless there is a handler, and used by almost nobody.
_NOTIFY = signal.SIGURG
_START_SECONDS = 20

_watch: Watch | None = None


class Watch:
    """A watch of this process. It lasts until the process ends, or until `stop()`."""

    def __init__(self, *, on_pressure: str, state_dir: str | None) -> None:
        """Start it."""
        import threading

        self.on_pressure = on_pressure
        self.pid = os.getpid()
        # A signal handler can be set in the main thread only.
        self._notifies = threading.current_thread() is threading.main_thread()
        self._earlier_handler: object = None
        self._rest = b""
        self._requests, self._notices = self._start(state_dir)
        try:
            self.id = self._read_id()
        except BaseException:
            self._close()
            raise
        os.set_blocking(self._notices, False)
        if self._notifies:
            self._earlier_handler = signal.signal(_NOTIFY, self._show)
            # System calls of other libraries are restarted.
            signal.siginterrupt(_NOTIFY, False)  # noqa: FBT003

    def _start(self, state_dir: str | None) -> tuple[int, int]:
        import subprocess

        program = installed("brimful")
        if program is None:
            raise MachineError(
                "the brimful program is missing from the installed package",
                ["reinstall it: pip install --force-reinstall brimful"],
            )
        request = {
            "pid": self.pid,
            "state_dir": state_dir,
            "interrupt": self.on_pressure == "interrupt",
            "notify": int(_NOTIFY) if self._notifies else None,
        }
        requests_out, requests_in = os.pipe()
        notices_out, notices_in = os.pipe()
        try:
            subprocess.run(  # noqa: S603
                [program, "__watch", json.dumps(request)],
                stdin=requests_out,
                stdout=notices_in,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=_START_SECONDS,
            )
        finally:
            os.close(requests_out)
            os.close(notices_in)
        return requests_in, notices_out

    def _read_id(self) -> str:
        import select

        ready, _, _ = select.select([self._notices], [], [], _START_SECONDS)
        line, _, self._rest = (os.read(self._notices, 1 << 16) if ready else b"").partition(b"\n")
        answer = json.loads(line) if line else {"error": "it did not start"}
        if "run" not in answer:
            raise MachineError(f"this process cannot be watched: {answer.get('error')}", [])
        run_id: str = answer["run"]
        return run_id

    def _show(self, _number: int, _frame: FrameType | None) -> None:
        """Print what the watch has to say, in the cell that is running."""
        with contextlib.suppress(BlockingIOError):
            self._rest += os.read(self._notices, 1 << 16)
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError, KeyError):
                sys.stderr.write(json.loads(line)["notice"] + "\n")
                sys.stderr.flush()

    def _leave(self) -> None:
        """Say that this process exits in order."""
        self._say(b"q")

    def _say(self, what: bytes) -> None:
        # A forked process is not the one that is watched.
        if os.getpid() == self.pid:
            with contextlib.suppress(OSError):
                os.write(self._requests, what)

    def _close(self) -> None:
        for handle in (self._requests, self._notices):
            with contextlib.suppress(OSError):
                os.close(handle)

    def stop(self) -> None:
        """Watch no longer."""
        global _watch  # noqa: PLW0603
        if _watch is not self:
            return
        import atexit

        atexit.unregister(self._leave)
        self._say(b"s")
        if self._notifies:
            with contextlib.suppress(ValueError, TypeError):
                signal.signal(_NOTIFY, self._earlier_handler or signal.SIG_DFL)  # type: ignore[arg-type]
        self._close()
        _watch = None

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        return f"Watch(process {self.pid}, run {self.id}, on_pressure={self.on_pressure!r})"


def watch(*, on_pressure: str = "warn", state_dir: str | os.PathLike[str] | None = None) -> Watch:
    """Watch the memory of this process, from another process that survives it.

    For training inside the kernel of a notebook. Before host memory runs out, a warning appears in the
    running cell. If the kernel is killed, `%load_ext brimful` in the new kernel shows why, with remedies. To
    keep the kernel alive in any case, train with `brimful.run()` instead.

    Args:
        on_pressure: What to do before host memory runs out: "warn", or "interrupt" to raise
            KeyboardInterrupt in the running cell, which keeps all variables.
        state_dir: The directory in which runs are recorded; by default the one of the command `brimful`.

    Returns:
        The `Watch`. Calling `watch()` again replaces it.

    Raises:
        InputError: `on_pressure` is unknown.
        MachineError: This process cannot be watched.
    """
    global _watch  # noqa: PLW0603
    if on_pressure not in {"warn", "interrupt"}:
        raise InputError(f'on_pressure must be "warn" or "interrupt", not {on_pressure!r}', [])
    if _watch is not None:
        _watch.stop()
    started = Watch(on_pressure=on_pressure, state_dir=None if state_dir is None else os.fspath(state_dir))
    import atexit

    atexit.register(started._leave)  # noqa: SLF001
    _watch = started
    return started
