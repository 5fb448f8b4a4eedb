"""`brimful.probe()`: the effective memory limits of a machine, and its problems."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field

from brimful import _native
from brimful._documents import ProbeDocument
from brimful._shown import Shown


@dataclass(frozen=True, repr=False, slots=True)
class Machine(Shown, ProbeDocument):
    """Everything known about one machine.

    An unknown value is None, and `gaps` gives the reason.
    The attributes are those of the document that `brimful probe --json` prints.

    Examples:
        >>> import brimful
        >>> machine = brimful.probe(as_machine="kaggle-t4x2")
        >>> machine
        Machine(kaggle-t4x2: headroom unknown of 31.36 GiB, 2 GPUs, 1 finding)
        >>> machine.gpus[1].torch_index
        1
    """

    _json: str = field(compare=False)
    _text: str = field(compare=False)
    _html: str = field(compare=False)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        name = self.subject.profile or self.platform.name
        headroom = _size(self.host.headroom_bytes)
        brim = _size(self.host.brim.limit_bytes)
        # A profile that names no GPU may have any; a machine without a driver has none that can be used.
        unknown = self.subject.profile is not None and any(gap.path == "gpus" for gap in self.gaps)
        gpus = "GPUs unknown" if unknown else _count(len(self.gpus), "GPU")
        findings = _count(len(self.findings), "finding")
        return f"Machine({name}: headroom {headroom} of {brim}, {gpus}, {findings})"


def probe(
    as_machine: str | None = None,
    *,
    gpu: str | None = None,
    memory: int | str | None = None,
) -> Machine:
    """Read the effective memory limits of this machine, and find likely problems.

    Starts no processes, creates no CUDA context, needs no root, and takes a few milliseconds.
    Describes the running Python; its torch is read from its files and not imported.

    Args:
        as_machine: Describe a known machine instead of this one, for example "colab-t4" (see
            `machine_names`).
        gpu: Replace the GPUs with these models, for example "rtx-4090" or "2x t4" (see `card_names`).
        memory: Override the memory limit: a number of bytes, or a string such as "16GiB".

    Returns:
        A frozen `Machine`. A notebook shows it as HTML.

    Raises:
        InputError: A name or a size is invalid.
        MachineError: This platform is not supported. Known machines can still be described.

    Examples:
        >>> import brimful
        >>> brimful.probe("colab-t4").shm.total_bytes
        6227702579
        >>> brimful.probe("k8s-default", memory="16GiB").host.headroom_bytes
        17179869184
        >>> brimful.probe("colab-t5")
        Traceback (most recent call last):
            ...
        brimful._errors.InputError: unknown machine `colab-t5` (did you mean `colab-t4`?)
        hint: call `brimful.machine_names()` to list all machines
    """
    as_json, as_text, as_html = _native.probe(
        as_machine=as_machine,
        gpu=gpu,
        memory=None if memory is None else str(memory),
        executable=sys.executable or None,
        import_folders=[folder for folder in sys.path if isinstance(folder, str) and folder.startswith("/")],
        version=sys.version_info[:2],
    )
    document = ProbeDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in ProbeDocument.__slots__}
    return Machine(**values, _json=as_json, _text=as_text, _html=as_html)


def machine_names() -> tuple[str, ...]:
    """Return the names of the known machines that `probe` can describe."""
    return tuple(_native.machine_names())


def card_names() -> tuple[str, ...]:
    """Return the names of the GPU models that `probe(gpu=...)` accepts."""
    return tuple(_native.card_names())


def _size(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else _native.size_text(size_bytes)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
