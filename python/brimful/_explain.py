"""`brimful.explain()` and `brimful.runs()`: why a run died, and the recorded runs."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field

from brimful import _native
from brimful._documents import ExplainDocument, RunsDocument
from brimful._shown import Shown


@dataclass(frozen=True, repr=False, slots=True)
class Explanation(Shown, ExplainDocument):
    """Why a run died: the cause, how certain it is, the evidence, and what to do.

    The attributes are those of the document that `brimful explain --json` prints.
    """

    _json: str = field(compare=False)
    _text: str = field(compare=False)
    _html: str = field(compare=False)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        return f"Explanation({self.verdict.cause}, {self.verdict.confidence}: {self.verdict.summary})"


@dataclass(frozen=True, repr=False, slots=True)
class Runs(Shown, RunsDocument):
    """The recorded runs, newest first.

    The attributes are those of the document that `brimful runs --json` prints.
    """

    _json: str = field(compare=False)
    _text: str = field(compare=False)
    _html: str = field(compare=False)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        return f"Runs({len(self.runs)} in {self.state_dir})"


def explain(
    what: str | os.PathLike[str] | None = None, *, state_dir: str | os.PathLike[str] | None = None
) -> Explanation:
    """Explain why a run died, from a run record, a log or a CUDA memory snapshot.

    Args:
        what: The ID of a run (or a part of it that no other run has), or the path of a run record, a log or a
            CUDA memory snapshot; by default the last run.
        state_dir: The directory in which runs are recorded; by default the one of the command `brimful`.

    Returns:
        A frozen `Explanation`. A notebook shows it as HTML.

    Raises:
        InputError: There is no such run or file, or it cannot be read.
    """
    return explanation(
        *_native.explain(
            what=None if what is None else os.fspath(what),
            state_dir=None if state_dir is None else os.fspath(state_dir),
        )
    )


def explanation(as_json: str, as_text: str, as_html: str) -> Explanation:
    """Make an `Explanation` from its three forms."""
    document = ExplainDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in ExplainDocument.__slots__}
    return Explanation(**values, _json=as_json, _text=as_text, _html=as_html)


def runs(*, last: int | None = None, state_dir: str | os.PathLike[str] | None = None) -> Runs:
    """List the recorded runs, newest first.

    Args:
        last: The number of runs to list; by default all.
        state_dir: The directory in which runs are recorded; by default the one of the command `brimful`.

    Returns:
        A frozen `Runs`.

    Raises:
        InputError: The state directory cannot be used.
    """
    as_json, as_text = _native.runs(last=last, state_dir=None if state_dir is None else os.fspath(state_dir))
    document = RunsDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in RunsDocument.__slots__}
    return Runs(**values, _json=as_json, _text=as_text, _html=preformatted(as_text))


def preformatted(text: str) -> str:
    """Return HTML that shows a page of text as it is."""
    import html

    return f'<pre style="line-height: 1.3; overflow-x: auto;">{html.escape(text)}</pre>'
