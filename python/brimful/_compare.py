"""`brimful.compare()`: memory, time and cost of a training on several GPUs and machines."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brimful import _native
from brimful._documents import CompareDocument
from brimful._errors import InputError
from brimful._predict import check_rehearsal, rehearsal_options, tell, with_command
from brimful._shown import Reported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MAX = 1e15


@dataclass(frozen=True, repr=False, slots=True)
class Comparison(Reported, CompareDocument):
    """Memory, time and cost of a training on several GPUs and machines.

    The attributes are those of the document that `brimful compare --json` prints.
    """

    _json: str = field(compare=False)
    _text: str = field(compare=False)
    _html: str = field(compare=False)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        names = ", ".join(f"{one.name} {one.verdict}" for one in self.candidates)
        best = "" if self.fastest is None else f"; fastest: {self.fastest}"
        return f"Comparison({names}{best})"


def compare(  # noqa: PLR0913
    training: Callable[[], object] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    gpu: str | Sequence[str] | None = None,
    as_machine: str | Sequence[str] | None = None,
    price: Mapping[str, float] | None = None,
    epochs: float | None = None,
    total_steps: int | None = None,
    job: str | os.PathLike[str] | None = None,
    mode: str | None = None,
    steps: int = 3,
    beside_driver: bool = False,  # noqa: ARG001
    time_limit: float = 900,
    allow_writes: bool = False,
    scratch: str | int | None = None,
    network: str = "full",
) -> Comparison:
    """Compare GPUs and machines for a training: whether it fits, how long it takes, what it costs.

    Rehearses the training as `predict` does, and calculates the time of a step on each GPU. No GPU is
    required.

    Args:
        training: A command as a list, for example ["python", "train.py"], or a function without arguments
            that trains. Without it, the settings of the job file are planned for each GPU, as `plan` does.
        gpu: GPU models to compare, for example "t4,2x a100-40gb" (see `card_names`); by default, without
            `as_machine`, the GPUs of this machine, or "t4,l4,a100-40gb,h100" if it has none.
        as_machine: Known machines to compare, for example "colab-t4,kaggle-t4x2" (see `machine_names`).
        price: Price of one hour for each name, for example {"t4": 0.35}.
        epochs: Length of the job in passes over the training data; 1 by default.
        total_steps: Length of the job in optimizer steps.
        job: The job file, if `training` is not given; by default `brimful.toml` in the current directory.
        mode: A mode of the job, for example "debug".
        steps: Number of optimizer steps to rehearse.
        beside_driver: Has no effect: a rehearsal never uses the GPU of this machine.
        time_limit: Timeout of each rehearsal in seconds.
        allow_writes: Disable isolation: the script's writes and deletions reach your files.
        scratch: Disk space for files that the script writes, for example "20GiB"; by default a tenth of the
            free space.
        network: "full", or "none" to allow connections to this machine only.

    Returns:
        A frozen `Comparison`. A notebook shows it as HTML; `report` writes a page with a chart.

    Raises:
        InputError: A name or a setting is unknown, or the script exited before its first step.
        MachineError: The phantom GPU cannot be used on this machine.
    """
    check_rehearsal(steps, (), time_limit)
    if training is not None and (job is not None or mode is not None):
        raise InputError("expected a training or a job file, not both", [])
    if training is not None and not callable(training) and not training:
        raise InputError("the command is empty", ["for example: ['python', 'train.py']"])
    if epochs is not None and total_steps is not None:
        raise InputError("expected epochs or total_steps, not both", [])
    names, machines = _names(gpu), _names(as_machine)
    prices = [(str(name), _positive("price", value)) for name, value in (price or {}).items()]
    n_epochs = None if epochs is None else _positive("epochs", epochs)
    if total_steps is not None and not isinstance(total_steps, int):
        raise InputError(f"total_steps must be an integer, not {total_steps!r}", [])
    n_steps = None if total_steps is None else int(_positive("total_steps", total_steps))
    path = None if job is None else os.fspath(job)
    rehearsal = rehearsal_options(
        steps=steps,
        time_limit=time_limit,
        allow_writes=allow_writes,
        scratch=scratch,
        network=network,
    )
    watched = sys.stderr is not None and sys.stderr.isatty()

    def compared(command: list[str], shown: list[str]) -> tuple[str, str, str]:
        return _native.compare(
            command=command,
            shown=shown,
            gpus=names,
            machines=machines,
            prices=prices,
            epochs=n_epochs,
            total_steps=n_steps,
            job=path,
            mode=mode,
            rehearsal=rehearsal,
            progress=tell if watched else None,
        )

    try:
        as_json, as_text, as_html = with_command([] if training is None else training, compared)
    finally:
        if watched:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
    document = CompareDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in CompareDocument.__slots__}
    return Comparison(**values, _json=as_json, _text=as_text, _html=as_html)


def _names(names: str | Sequence[str] | None) -> list[str]:
    """Return the names of a list, or of a string with commas."""
    parts = names.split(",") if isinstance(names, str) else names or ()
    return [str(name).strip() for name in parts]


def _positive(what: str, value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        is_free = what == "price" and value == 0
        if is_free or 0 < value < _MAX:
            return float(value)
    raise InputError(f"{what} must be a positive number, not {value!r}", [])
