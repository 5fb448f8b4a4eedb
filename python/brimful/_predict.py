"""`brimful.predict()`: predicts GPU and host memory of a training run, without a GPU."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from brimful import _native
from brimful._child import command_for, installed, private_directory
from brimful._documents import PredictDocument
from brimful._errors import InputError, MachineError
from brimful._shown import Reported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_LIBRARY = "libbrimful_phantom.so"
_REDIRECT = "libbrimful_redirect.so"
_MAX_STEPS = 1000

Result = TypeVar("Result")


@dataclass(frozen=True, repr=False, slots=True)
class Footprint(Reported, PredictDocument):
    """Predicted memory of a training run, on the GPU and on the host.

    The attributes are those of the document that `brimful predict --json` prints.
    """

    _json: str = field(compare=False)
    _text: str = field(compare=False)
    _html: str = field(compare=False)

    @property
    def fits(self) -> bool:
        """Whether it fits at least one of the GPUs, by the safe value; true for training on the CPU."""
        return not self.gpus or any(gpu.fits for gpu in self.gpus)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        if self.peak is None:
            return f"Footprint({self._host_line()})"
        likely = _native.size_text(self.peak.device_bytes.likely)
        safe = _native.size_text(self.peak.device_bytes.safe)
        verdicts = ", ".join(f"{gpu.name} {gpu.verdict}" for gpu in self.gpus)
        return f"Footprint({likely} likely, {safe} safe; {verdicts})"

    def _host_line(self) -> str:
        if self.host is None:
            return "no GPU, host not measured"
        likely = _native.size_text(self.host.bytes.likely)
        safe = _native.size_text(self.host.bytes.safe)
        return f"host {likely} likely, {safe} safe"


def predict(  # noqa: PLR0913
    training: Callable[[], object] | Sequence[str | os.PathLike[str]],
    *,
    gpu: str | None = None,
    steps: int = 3,
    with_: Sequence[str] = (),
    alloc_conf: str | None = None,
    beside_driver: bool = False,  # noqa: ARG001
    time_limit: float = 900,
    allow_writes: bool = False,
    scratch: str | int | None = None,
    network: str = "full",
) -> Footprint:
    """Predict the memory of a training script by rehearsing it on a phantom GPU.

    Runs the unmodified script in its own process for a few optimizer steps. PyTorch's own code decides
    every allocation, but GPU memory consists only of addresses and kernels do nothing. What the script
    writes, deletes and renames goes to a private copy, so your files do not change. No GPU and no driver is
    required, only the CUDA build of torch; a build without CUDA gives less accurate values, and `caveats`
    says so.

    Args:
        training: A command as a list, for example ["python", "train.py"], or a function without arguments
            that trains. A function defined in a notebook requires the package cloudpickle.
        gpu: GPU models to predict for, for example "t4,rtx-4090" or "2x a100-40gb" (see `card_names`); "none"
            for training on CPUs, where only host memory is predicted; by default the GPUs of this machine, or
            "t4,l4,a100-40gb,h100" if it has none.
        steps: Number of optimizer steps to rehearse.
        with_: Phases to rehearse after the steps: "eval", "save".
        alloc_conf: Allocator settings, as in PYTORCH_CUDA_ALLOC_CONF.
        beside_driver: Has no effect: a rehearsal never uses the GPU of this machine.
        time_limit: Timeout in seconds.
        allow_writes: Disable isolation: the script's writes and deletions reach your files.
        scratch: Disk space for files that the script writes, for example "20GiB"; by default a tenth of the
            free space.
        network: "full", or "none" to allow connections to this machine only.

    Returns:
        A frozen `Footprint`. A notebook shows it as HTML.

    Raises:
        InputError: A name or a setting is unknown, or the script exited before its first step.
        MachineError: The phantom GPU cannot be used on this machine.
    """
    check_rehearsal(steps, with_, time_limit)
    rehearsal = rehearsal_options(
        steps=steps,
        time_limit=time_limit,
        allow_writes=allow_writes,
        scratch=scratch,
        network=network,
    )
    return with_command(
        training,
        lambda command, shown: _predict(command, shown, gpu, with_, alloc_conf, rehearsal),
    )


def with_command(
    training: Callable[[], object] | Sequence[str | os.PathLike[str]],
    use: Callable[[list[str], list[str]], Result],
) -> Result:
    """Call `use` with the command of a training, and with how it is shown."""
    if callable(training):
        with private_directory() as folder:
            shown = [getattr(training, "__qualname__", repr(training)) + "()"]
            return use(command_for(training, folder), shown)
    if isinstance(training, (str, bytes)):
        raise InputError(
            "the command must be a list of arguments, not a string", ["for example: ['python', 'train.py']"]
        )
    command = [os.fspath(word) for word in training]
    return use(command, command)


def check_rehearsal(steps: int, with_: Sequence[str], time_limit: float) -> None:
    """Reject arguments that a rehearsal would misunderstand."""
    if "BRIMFUL_REHEARSAL" in os.environ:
        raise InputError(
            "predict() or compare() was called inside a rehearsal: the training script calls it itself",
            ['move the call under `if __name__ == "__main__":`'],
        )
    unknown = sorted(set(with_) - {"eval", "save"})
    if unknown:
        raise InputError(f'with_ accepts "eval" and "save", not {", ".join(unknown)}', [])
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= _MAX_STEPS:
        raise InputError(f"steps must be an integer from 1 to {_MAX_STEPS}, not {steps!r}", [])
    number = isinstance(time_limit, (int, float)) and not isinstance(time_limit, bool)
    if not number or not 0 < time_limit < float("inf"):
        raise InputError(f"time_limit must be a positive number of seconds, not {time_limit!r}", [])


def _predict(  # noqa: PLR0913, PLR0917
    command: list[str],
    shown: list[str],
    gpu: str | None,
    with_: Sequence[str],
    alloc_conf: str | None,
    rehearsal: dict[str, object],
) -> Footprint:
    watched = sys.stderr is not None and sys.stderr.isatty()
    try:
        as_json, as_text, as_html = _native.predict(
            command=command,
            shown=shown,
            gpu=gpu,
            with_=list(with_),
            alloc_conf=alloc_conf,
            rehearsal=rehearsal,
            progress=tell if watched else None,
        )
    finally:
        if watched:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
    document = PredictDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in PredictDocument.__slots__}
    return Footprint(**values, _json=as_json, _text=as_text, _html=as_html)


def tell(line: str) -> None:
    """Show a line of progress."""
    sys.stderr.write(f"\r\x1b[Krehearsing: {line[:60]}")
    sys.stderr.flush()


def _phantom() -> Path:
    """Return the path of the phantom GPU."""
    path = installed(_LIBRARY)
    if path is None:
        raise MachineError(
            f"{_LIBRARY} is missing from the installed package",
            ["reinstall it: pip install --force-reinstall brimful"],
        )
    return path


def rehearsal_options(
    *,
    steps: int,
    time_limit: float,
    allow_writes: bool,
    scratch: str | int | None,
    network: str,
) -> dict[str, object]:
    """Return the options of a rehearsal."""
    program = installed("brimful")
    if program is None:
        raise MachineError(
            "the brimful program is missing from the installed package",
            ["reinstall it: pip install --force-reinstall brimful"],
        )
    return {
        "steps": steps,
        "time_limit": time_limit,
        "phantom": _phantom(),
        "program": program,
        "redirect_library": installed(_REDIRECT) or _REDIRECT,
        "allow_writes": bool(allow_writes),
        "network": network,
        "scratch": None if scratch is None else str(scratch),
    }
