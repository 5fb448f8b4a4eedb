"""`brimful.replay()`: recorded allocations on another GPU or with other allocator settings."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brimful import _native
from brimful._documents import ReplayDocument
from brimful._explain import preformatted
from brimful._shown import Reported

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, repr=False, slots=True)
class Replay(Reported, ReplayDocument):
    """The results of a replay, one for each capacity and setting.

    The attributes are those of the document that `brimful replay --json` prints.
    """

    _json: str = field(compare=False)
    _text: str = field(compare=False)
    _html: str = field(compare=False)

    @property
    def fits(self) -> bool:
        """Whether at least one of the replays does not run out of memory."""
        return any(not result.oom for result in self.results)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        fitting = sum(not result.oom for result in self.results)
        return f"Replay({self.file}: {fitting} of {len(self.results)} fit)"


def replay(  # noqa: PLR0913
    file: str | os.PathLike[str],
    *,
    gpu: str | Sequence[str] = (),
    capacity: str | int | Sequence[str | int] = (),
    alloc_conf: str | Sequence[str] = (),
    device: int | None = None,
    torch: str | None = None,
) -> Replay:
    """Replay recorded allocations on another GPU or with other allocator settings.

    Args:
        file: A PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`), or a trace of
            `brimful predict --save-trace`. No code in the file is executed.
        gpu: GPU models, for example "t4,rtx-4090" (see `card_names`).
        capacity: GPU memory available to PyTorch, for example "12GiB"; one or several.
        alloc_conf: Allocator settings as in PYTORCH_CUDA_ALLOC_CONF, one or several; by default the ones that
            people try first.
        device: The device of the snapshot; by default the one with the longest history.
        torch: The version of PyTorch to model; by default the one in the file.

    Returns:
        A frozen `Replay`.

    Raises:
        InputError: The file cannot be replayed, or a name or setting is unknown.
    """

    def listed(value: str | int | Sequence[str | int]) -> list[str]:
        return [str(value)] if isinstance(value, (str, int)) else [str(one) for one in value]

    as_json, as_text = _native.replay(
        file=os.fspath(file),
        gpu=listed(gpu),
        capacity=listed(capacity),
        alloc_conf=listed(alloc_conf),
        device=device,
        torch=torch,
    )
    document = ReplayDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in ReplayDocument.__slots__}
    return Replay(**values, _json=as_json, _text=as_text, _html=preformatted(as_text))
