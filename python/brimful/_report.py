"""`brimful.report()`: an HTML file about runs, snapshots, predictions and plans."""

from __future__ import annotations

import os

from brimful import _native


def report(
    *what: str | os.PathLike[str],
    path: str | os.PathLike[str] = "brimful-report.html",
    force: bool = False,
    state_dir: str | os.PathLike[str] | None = None,
) -> None:
    """Write a report: one HTML file with charts, which loads nothing from the network.

    Args:
        what: A run by its ID, several runs to compare, or the path of a run record, a CUDA memory snapshot, a
            trace or a document that a command printed with `--json`; by default the last run.
        path: The file to write. One that is not a report of brimful is kept unless `force` is set.
        force: Replace any file.
        state_dir: The directory in which runs are recorded; by default the one of the command `brimful`.

    Raises:
        InputError: There is no such run or file, or `path` exists and is not a report of brimful.
        MachineError: The file cannot be written.
    """
    _native.report(
        what=[os.fspath(one) for one in what],
        path=os.fspath(path),
        force=force,
        state_dir=None if state_dir is None else os.fspath(state_dir),
    )
