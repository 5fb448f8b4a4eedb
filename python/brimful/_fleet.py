"""`brimful.runs(at=...)`: what the runs of many users and machines teach."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brimful import _native
from brimful._documents import FleetDocument
from brimful._explain import preformatted
from brimful._shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, repr=False, slots=True)
class Fleet(Shown, FleetDocument):
    """What the runs that were recorded in a directory or an object store have in common.

    The attributes are those of the document that `brimful runs --at --json` prints.
    """

    _json: str = field(compare=False)
    _text: str = field(compare=False)
    _html: str = field(compare=False)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        return f"Fleet({self.n_runs} runs, {self.n_died_of_memory} ended out of memory)"


def survey(
    at: str | os.PathLike[str],
    *,
    report: str | os.PathLike[str] | None = None,
    force: bool = False,
    width: int = 80,
    progress: Callable[[int, int], object] | None = None,
) -> Fleet:
    """Count the records below a directory or a URL."""
    as_json, as_text = _native.survey(
        os.fspath(at),
        report=None if report is None else os.fspath(report),
        force=force,
        width=width,
        progress=progress,
    )
    document = FleetDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in FleetDocument.__slots__}
    return Fleet(**values, _json=as_json, _text=as_text, _html=preformatted(as_text))
