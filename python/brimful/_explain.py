"""`brimful.explain()` and `brimful.runs()`: why a run died, and the recorded runs."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from brimful import _native
from brimful._documents import ExplainDocument, RunsDocument
from brimful._errors import InputError
from brimful._shown import Shown

if TYPE_CHECKING:
    from brimful._fleet import Fleet


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


@overload
def runs(*, last: int | None = None, state_dir: str | os.PathLike[str] | None = None) -> Runs: ...


@overload
def runs(*, at: str | os.PathLike[str], report: str | os.PathLike[str] | None = None) -> Fleet: ...


def runs(
    *,
    last: int | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    at: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
) -> Runs | Fleet:
    """List the recorded runs, newest first, or summarize those of many users and machines.

    Args:
        last: The number of runs to list; by default all.
        state_dir: The directory in which runs are recorded; by default the one of the command `brimful`.
        at: The directory or URL of `brimful run --records`, to summarize all runs that were recorded there.
        report: With `at`, also write the summary to this file as a page with charts.

    Returns:
        A frozen `Runs`, or with `at` a frozen `Fleet`.

    Raises:
        InputError: The directory cannot be used.
        MachineError: The object store cannot be used, or the report cannot be written.
    """
    if at is not None:
        from brimful._fleet import survey

        if last is not None or state_dir is not None:
            raise InputError("last and state_dir cannot be combined with at", ["omit them"])
        return survey(at, report=report)
    if report is not None:
        raise InputError(
            "report requires at", ['for example: brimful.runs(at="/shared/records", report="f.html")']
        )
    as_json, as_text = _native.runs(last=last, state_dir=None if state_dir is None else os.fspath(state_dir))
    document = RunsDocument._from_json(json.loads(as_json))  # noqa: SLF001
    values = {name: getattr(document, name) for name in RunsDocument.__slots__}
    return Runs(**values, _json=as_json, _text=as_text, _html=preformatted(as_text))


def preformatted(text: str) -> str:
    """Return HTML that shows a page of text as it is."""
    import html

    return f'<pre style="line-height: 1.3; overflow-x: auto;">{html.escape(text)}</pre>'
