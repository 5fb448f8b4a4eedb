"""`brimful.run()`: trains in a process of its own, watches its memory and explains a failure."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brimful import _native
from brimful._child import command_for, function_directory, installed, private_directory
from brimful._errors import InputError, MachineError
from brimful._explain import Explanation, explain
from brimful._function_job import FunctionJob

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping, Sequence

# What `brimful` exits with if it could not start anything (docs/reference/exit-codes.md).
_INVALID_INPUT, _ENVIRONMENT, _NOTHING_FITS = 96, 97, 99
# Seconds without output after which a pipe that something else keeps open is left alone.
_LAST_OUTPUT = 1.0
# Seconds that the rest of a line has to follow.
_REST_OF_LINE = 0.05
# Seconds between two pictures of a run: at first, and after a minute.
_BETWEEN_PICTURES = (1.0, 5.0)


@dataclass(frozen=True, repr=False, slots=True)
class Run:
    """A run that has ended."""

    id: str | None
    """The ID of the run; None if it could not be recorded."""
    exit_code: int
    """The exit code of the training, or 128 + N if signal N killed it."""
    explanation: Explanation | None
    """Why it ended; None if it could not be recorded."""

    @property
    def finished(self) -> bool:
        """Whether the training ended with exit code 0."""
        return self.exit_code == 0

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        if self.finished or self.explanation is None:
            return f"Run({self.id}, exit code {self.exit_code})"
        return f"Run({self.id}, exit code {self.exit_code}: {self.explanation.verdict.summary})"

    def __str__(self) -> str:
        """Return the explanation as text."""
        return repr(self) if self.explanation is None else str(self.explanation)


def run(  # noqa: PLR0913
    training: Callable[..., object] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    knobs: Mapping[str, object] | None = None,
    effective_batch: int | None = None,
    sacrifice: Sequence[str] = (),
    checkpoints: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    job: str | os.PathLike[str] | None = None,
    mode: str | None = None,
    overrides: Mapping[str, object] | None = None,
    attempts: int = 8,
    resume: bool = False,
    as_wanted: bool = False,
    gpu: str | None = None,
    on_pressure: str = "warn",
    signal: str = "USR1",
    grace: int = 30,
    trace_allocations: bool = False,
    quiet: bool = False,
    records: str | os.PathLike[str] | None = None,
    otlp: bool | str = False,
    state_dir: str | os.PathLike[str] | None = None,
) -> Run:
    """Train in another process, watch its memory, and explain a failure.

    In a notebook the kernel and its variables survive an out-of-memory kill, and GPU memory is free again
    afterwards. The output of the training and a chart of its memory appear in the cell. Interrupting the cell
    interrupts the training; restarting the kernel stops it.

    Args:
        training: A function that trains, or a command as a list, for example ["python", "train.py"]. A
            function defined in a notebook requires the package cloudpickle. By default the job file is run:
            brimful plans, and restarts with less memory after an out-of-memory failure.
        knobs: Arguments of the function that brimful may change, as in a job file, for example
            {"micro_batch": [64, 32, 16], "workers": [4, 2, 0]}: the preferred value first. brimful plans,
            calls the function with the values that fit, and after an out-of-memory failure restarts it with
            less. Without knobs the function is called once, without arguments.
        effective_batch: Samples per optimizer step, which stay the same. It is required if `micro_batch` has
            several values. If both are given, the function gets the argument `accumulation`.
        sacrifice: Knobs that may change the training result, in the order in which to change them.
        checkpoints: A pattern, or several, of the files that contain the function's checkpoints. After a
            restart the function gets the path of the furthest complete one as the argument `checkpoint`,
            which should have a default.
        job: The job file; by default `brimful.toml` in the current directory, or `[tool.brimful]` in
            `pyproject.toml`.
        mode: A mode of the job, for example "debug".
        overrides: Values of knobs to keep fixed, for example {"workers": 2}.
        attempts: Maximum number of attempts of a job.
        resume: Start the job from its complete checkpoint with the highest step.
        as_wanted: Skip planning and start with the preferred value of every knob.
        gpu: Plan the job for these GPU models; by default those of this machine.
        on_pressure: What to do before host memory runs out: "warn", "checkpoint" or "stop".
        signal: The signal on which the training writes a checkpoint, for example "USR1".
        grace: Seconds between the checkpoint signal, SIGTERM and SIGKILL.
        trace_allocations: Record every CUDA allocation, so that other allocator settings can be tested
            after a failure.
        quiet: Print only the cause of a failure.
        records: A directory or URL to which one Parquet file about the run is written when it has ended, for
            `brimful.runs(at=...)`.
        otlp: The URL of an OpenTelemetry collector to which metrics are sent; True for the one that the
            environment names, or http://localhost:4318.
        state_dir: The directory in which runs are recorded; by default the one of the command `brimful`.

    Returns:
        A frozen `Run`. In a notebook the explanation of a failure appears below the cell.

    Raises:
        InputError: The arguments or the job file are invalid, or no settings fit.
        MachineError: The brimful program cannot be used on this machine.
        KeyboardInterrupt: The cell was interrupted; the training has ended.
    """
    options = [
        *_option("--on-pressure", on_pressure),
        *_option("--signal", signal),
        *_option("--grace", grace),
        *(["--trace-allocations"] if trace_allocations else []),
        *(["--quiet"] if quiet else []),
        *_option("--records", records),
        *(["--otlp"] if otlp is True else _option("--otlp", otlp or None)),
        *_option("--state-dir", state_dir),
    ]
    of_job_file = job is not None or mode is not None or bool(overrides)
    of_function = effective_batch is not None or bool(sacrifice) or checkpoints is not None
    if training is not None and of_job_file:
        raise InputError(
            "job, mode and overrides belong to a job file, not to a function or command",
            ["omit them, or omit the function or command to run the job file"],
        )
    if knobs is None and (of_function or (training is not None and (resume or as_wanted or gpu is not None))):
        raise InputError(
            "effective_batch, sacrifice, checkpoints, resume, as_wanted and gpu require knobs or a job file",
            ['for example: brimful.run(train, knobs={"workers": [4, 2, 0]})'],
        )
    if knobs is not None and not callable(training):
        raise InputError(
            "knobs are arguments of a function; expected a function, found a command or a job file",
            ["pass a function, or write the knobs to the job file: `brimful init`"],
        )
    if training is None or knobs is not None:
        options += [
            *_option("--job", job),
            *_option("--mode", mode),
            *_option("--attempts", attempts),
            *_option("--gpu", gpu),
            *(["--resume"] if resume else []),
            *(["--as-wanted"] if as_wanted else []),
        ]
        for knob, value in (overrides or {}).items():
            options += ["--set", _setting(knob, value)]
    with ExitStack() as stack:
        if training is None:
            command: list[str] = []
        elif callable(training):
            if knobs is None:
                command = ["--", *command_for(training, stack.enter_context(private_directory()))]
            else:
                function_job = FunctionJob(training, knobs, effective_batch, sacrifice, checkpoints)
                directory, function = stack.enter_context(function_directory(function_job.caller))
                command = _option("--job", function_job.write(function, directory))
        elif isinstance(training, (str, bytes)):
            raise InputError(
                "the command must be a list of arguments, not a string",
                ["for example: ['python', 'train.py']"],
            )
        else:
            command = ["--", *(os.fspath(word) for word in training)]
        return supervise([*options, *command], state_dir)


def supervise(arguments: list[str], state_dir: str | os.PathLike[str] | None) -> Run:
    """Run `brimful run` with these arguments, and find out how it ended."""
    program = installed("brimful")
    if program is None:
        raise MachineError(
            "the brimful program is missing from the installed package",
            ["reinstall it: pip install --force-reinstall brimful"],
        )
    shell = _notebook_shell()
    # A notebook shows the explanation as HTML.
    options = ["--stop-with-parent", str(os.getpid()), *(["--no-summary"] if shell else [])]
    place = None if state_dir is None else os.fspath(state_dir)
    child_pid, exit_code = _train(
        [str(program), "run", *options, *arguments],
        place,
        with_picture=shell and not _is_quiet(arguments),
    )
    run_id = _native.run_of_supervisor(supervisor_pid=child_pid, state_dir=place)
    if run_id is None and exit_code in {_INVALID_INPUT, _NOTHING_FITS}:
        raise InputError("brimful could not start the training; its message is above", [])
    if run_id is None and exit_code == _ENVIRONMENT:
        raise MachineError("brimful could not start the training; its message is above", [])
    explanation = None if run_id is None else explain(run_id, state_dir=state_dir)
    if shell and exit_code != 0 and explanation is not None:
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        display(explanation)  # type: ignore[no-untyped-call, unused-ignore]
    return Run(run_id, exit_code, explanation)


def _notebook_shell() -> bool:
    """Whether this is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _is_quiet(arguments: list[str]) -> bool:
    """Whether brimful, not the command that it runs, is asked to be quiet."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--quiet" in own or "-q" in own


def _option(name: str, value: object) -> list[str]:
    return (
        [] if value is None else [f"{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]
    )


def _setting(knob: str, value: object) -> str:
    from brimful._plan import written

    return written(knob, value)


def _train(command: list[str], state_dir: str | None, *, with_picture: bool) -> tuple[int, int]:
    """Run a command with its output on Python's own streams; its process ID and exit code."""
    import subprocess

    started_ms = time.time_ns() // 1_000_000
    if _has_own_streams():
        sys.stdout.flush()
        child = subprocess.Popen(command)  # noqa: S603
        relay = None
    else:
        # In a session of its own: Jupyter interrupts the whole process group of the kernel.
        child = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        relay = _Relay(child, _Picture(child.pid, started_ms, state_dir) if with_picture else None)
    interrupted = _wait(child, relay)
    if relay is not None:
        relay.close()
    if interrupted:
        raise KeyboardInterrupt
    code = child.returncode
    return child.pid, code if code >= 0 else 128 - code


def _wait(child: subprocess.Popen[bytes], relay: _Relay | None) -> bool:
    """Wait until the command has ended; whether it was interrupted."""
    import signal

    interrupts = 0
    while True:
        try:
            if relay is not None:
                relay.copy()
            child.wait()
        except KeyboardInterrupt:  # noqa: PERF203
            interrupts += 1
            if relay is not None:
                child.send_signal(signal.SIGINT if interrupts == 1 else signal.SIGTERM)
        else:
            return interrupts > 0


def _has_own_streams() -> bool:
    """Whether what a child process prints appears where Python prints."""
    import io

    def is_own(stream: object, number: int) -> bool:
        try:
            return isinstance(stream, io.TextIOWrapper) and stream.fileno() == number
        except (OSError, ValueError):
            return False

    return is_own(sys.stdout, 1) and is_own(sys.stderr, 2)


class _Relay:
    """Copies what a process prints to Python's own streams, in the thread that waits for it.

    Notebooks show what is printed by the thread of the cell below that cell.
    """

    def __init__(self, child: subprocess.Popen[bytes], picture: _Picture | None) -> None:
        import codecs
        import selectors

        self.child = child
        self.picture = picture
        # Some programs write a line in pieces, and a notebook shows each piece on its own.
        self.unfinished: dict[str, str] = {}
        self.selector = selectors.DefaultSelector()
        decoder = codecs.getincrementaldecoder("utf-8")
        for pipe, name in ((child.stdout, "stdout"), (child.stderr, "stderr")):
            if pipe is not None:
                self.selector.register(pipe, selectors.EVENT_READ, (name, decoder("replace")))

    def copy(self) -> None:
        """Copy until the process has ended and has nothing more to say."""
        if self.picture is not None and self.picture.handle is None:
            self.picture.begin()
        while self.selector.get_map():
            ready = self.selector.select(_REST_OF_LINE if self.unfinished else _LAST_OUTPUT)
            if self.picture is not None:
                self.picture.show_if_due()
            if not ready:
                self.print_unfinished()
                if self.child.poll() is not None:
                    return
            for key, _ in ready:
                name, decoder = key.data
                data = os.read(key.fd, 1 << 16)
                text = self.unfinished.pop(name, "") + decoder.decode(data, final=not data)
                if text.endswith("\n") or not data:
                    self.print(name, text)
                elif text:
                    self.unfinished[name] = text
                if not data:
                    self.selector.unregister(key.fileobj)
        self.print_unfinished()

    def print(self, name: str, text: str) -> None:
        """Print text on one of Python's streams."""
        stream = getattr(sys, name)
        stream.write(text)
        stream.flush()

    def print_unfinished(self) -> None:
        """Print lines whose end did not follow, such as progress bars."""
        for name in list(self.unfinished):
            self.print(name, self.unfinished.pop(name))

    def close(self) -> None:
        """Show the last picture and close the pipes."""
        if self.picture is not None:
            self.picture.show()
        self.selector.close()
        for pipe in (self.child.stdout, self.child.stderr):
            if pipe is not None:
                pipe.close()


class _Picture:
    """The memory of a run over time, below the cell. Whatever fails here must not disturb the training."""

    def __init__(self, supervisor_pid: int, started_ms: int, state_dir: str | None) -> None:
        self.began = time.monotonic()
        self.shown = self.began
        self.follower: _native.RunFollower | None = _native.RunFollower(
            supervisor_pid=supervisor_pid, since_unix_ms=started_ms, state_dir=state_dir
        )
        self.handle: Any = None

    def begin(self) -> None:
        """Take the place above what the training prints."""
        self.display(
            {"text/html": "<div><b>brimful</b> · starting</div>", "text/plain": "brimful · starting"}
        )

    def show_if_due(self) -> None:
        """Show what is new, every few seconds."""
        now = time.monotonic()
        soon, later = _BETWEEN_PICTURES
        if now - self.shown >= (soon if now - self.began < 60 else later):  # noqa: PLR2004
            self.shown = now
            self.show()

    def show(self) -> None:
        """Show what is new."""
        if self.follower is None:
            return
        try:
            forms = self.follower.poll()
        except Exception:  # noqa: BLE001
            self.follower = None
            return
        if forms is not None:
            html, text = forms
            self.display({"text/html": html, "text/plain": text})

    def display(self, bundle: dict[str, str]) -> None:
        """Put this in the place of what was shown before."""
        try:
            if self.handle is None:
                from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

                self.handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call, unused-ignore]
            else:
                self.handle.update(bundle, raw=True)
        except Exception:  # noqa: BLE001
            self.follower = None
