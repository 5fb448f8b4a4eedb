"""`brimful.plan()`: finds the fastest settings that fit."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brimful import _native
from brimful._documents import PlanDocument
from brimful._errors import InputError
from brimful._predict import rehearsal_options
from brimful._shown import Reported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, repr=False, slots=True)
class Plan(Reported, PlanDocument):
    """The fastest settings that fit, the reasons, and the lower rungs.

    The attributes are those of the document that `brimful plan --json` prints.
    """

    _json: str = field(compare=False)
    _text: str = field(compare=False)
    _html: str = field(compare=False)
    _hf: str = field(compare=False)
    _lightning: str = field(compare=False)

    def training_arguments(self) -> dict[str, Any]:
        """Return the settings under the names of Hugging Face's `TrainingArguments`."""
        arguments: dict[str, Any] = json.loads(self._hf)
        return arguments

    def trainer_kwargs(self) -> dict[str, Any]:
        """Return the settings as arguments of Lightning's `Trainer`."""
        found: dict[str, Any] = json.loads(self._lightning)["trainer"]
        return found

    def dataloader_kwargs(self) -> dict[str, Any]:
        """Return the settings as arguments of a PyTorch `DataLoader`."""
        found: dict[str, Any] = json.loads(self._lightning)["dataloader"]
        return found

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        chosen = ", ".join(f"{knob}={value}" for knob, value in self.settings.items())
        return f"Plan({chosen})" if self.fits else f"Plan(nothing fits; closest: {chosen})"


def plan(  # noqa: PLR0913
    job: str | os.PathLike[str] | None = None,
    *,
    mode: str | None = None,
    as_machine: str | None = None,
    gpu: str | None = None,
    memory: str | int | None = None,
    overrides: Mapping[str, object] | None = None,
    fresh: bool = False,
    steps: int = 3,
    beside_driver: bool = False,  # noqa: ARG001
    time_limit: float = 900,
    allow_writes: bool = False,
    scratch: str | int | None = None,
    network: str = "full",
) -> Plan:
    """Find the fastest settings that fit, by rehearsing the command of the job with a few of them.

    Args:
        job: The job file; by default `brimful.toml` in the current directory, or `[tool.brimful]` in
            `pyproject.toml`.
        mode: A mode of the job, for example "debug".
        as_machine: Plan for a known machine instead of this one (see `machine_names`).
        gpu: Plan for these GPU models, for example "t4" or "2x a100-40gb"; "none" plans for CPUs.
        memory: Override the cgroup memory limit, for example "16GiB" or a number of bytes.
        overrides: Values to keep fixed, for example {"workers": 2} or {"resolution": [24, 16]}.
        fresh: Rehearse again instead of using cached rehearsals.
        steps: Number of optimizer steps in each rehearsal.
        beside_driver: Has no effect: a rehearsal never uses the GPU of this machine.
        time_limit: Timeout of each rehearsal in seconds.
        allow_writes: Disable isolation: the job's writes and deletions reach your files.
        scratch: Disk space for files that the job writes, for example "20GiB"; by default a tenth of the free
            space.
        network: "full", or "none" to allow connections to this machine only.

    Returns:
        A frozen `Plan`; `fits` is whether any settings fit. A notebook shows it as HTML.

    Raises:
        InputError: The job file or a name in it is invalid, or the command exited before its first step.
        MachineError: The phantom GPU cannot be used on this machine.
    """
    watched = sys.stderr is not None and sys.stderr.isatty()
    try:
        as_json, as_text, as_html, hf, lightning = _native.plan(
            job=None if job is None else os.fspath(job),
            mode=mode,
            overrides=[written(knob, value) for knob, value in (overrides or {}).items()],
            as_machine=as_machine,
            gpu=gpu,
            memory=None if memory is None else str(memory),
            fresh=fresh,
            rehearsal=rehearsal_options(
                steps=steps,
                time_limit=time_limit,
                allow_writes=allow_writes,
                scratch=scratch,
                network=network,
            ),
            progress=_tell if watched else None,
        )
    finally:
        if watched:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
    document = PlanDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in PlanDocument.__slots__}
    return Plan(**values, _json=as_json, _text=as_text, _html=as_html, _hf=hf, _lightning=lightning)


def written(knob: str, value: object) -> str:
    """Write an override as the command line has it."""

    def word(one: object) -> str:
        if isinstance(one, bool):
            return "true" if one else "false"
        if isinstance(one, (int, float, str)):
            return str(one)
        raise InputError(f"{knob} must be a number, a string or a list of them, not {one!r}", [])

    if isinstance(value, (list, tuple)):
        values: Sequence[object] = value
        return f"{knob}={','.join(word(one) for one in values)}"
    return f"{knob}={word(value)}"


def _tell(line: str) -> None:
    sys.stderr.write(f"\r\x1b[K{line[:78]}")
    sys.stderr.flush()
