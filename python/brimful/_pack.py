"""Pack documents into one file of tokens; public as `brimful.data.pack`."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brimful import _data_arguments as given
from brimful import _native

if TYPE_CHECKING:
    from collections.abc import Callable

    from brimful._data_arguments import Path
    from brimful._dataset import Dataset

    Progress = Callable[[int, int], object]

__all__ = ["Packed", "pack"]

_BETWEEN_REPORTS = 0.5


@dataclass(frozen=True, slots=True)
class Packed:
    """A file of tokens and the number of documents in it. Open it with `brimful.data.tokens`."""

    documents: int
    tokens: int
    dtype: str
    path: str


def pack(  # noqa: PLR0913
    dataset: Dataset,
    field: str,
    tokenizer: Path,
    path: Path,
    *,
    dtype: str | None = None,
    end_id: int | None = None,
    special_tokens: bool = False,
    threads: int | None = None,
    memory: int | str = "256MiB",
    progress: Progress | bool | None = None,
) -> Packed:
    """Tokenize the texts of a dataset into one file, in order and within a memory budget.

    The start of each document is stored in `path` + ".documents"; `tokens(path, length, documents=True)`
    reads both files. While they are being written, the files are named `path` + ".part" and
    `path` + ".documents.part", so an interrupted call leaves no incomplete file under the final names. The
    result does not depend on the number of threads.

    Documents longer than 128 KiB are split before a space and encoded part by part, which makes no
    difference for most tokenizers.

    Args:
        dataset: A dataset opened with a function of `brimful.data`.
        field: The text field.
        tokenizer: Path of a `tokenizer.json`, or of a directory that contains one.
        path: The file to write. An existing file is replaced at the end.
        dtype: "uint16" or "uint32"; by default the smaller one that can hold all tokens.
        end_id: Token to add after every document.
        special_tokens: Add the special tokens of the tokenizer to every document.
        threads: Number of threads; by default one per usable CPU, or fewer if the memory budget is too small.
        memory: Memory budget without the tokenizer: a number of bytes, or a string such as "256MiB".
        progress: Function called with the number of completed documents and the total, at most twice per
            second. By default, progress is shown on standard error if it is a terminal. False disables it.

    Raises:
        InputError: An argument is invalid, or a document is not text; the message names its index.
        MachineError: The files cannot be written, or another process is writing them.
    """
    packing = _native.Packing(
        dataset._native,  # noqa: SLF001
        field,
        os.fspath(tokenizer),
        os.fspath(path),
        dtype=dtype,
        end_id=end_id,
        special_tokens=special_tokens,
        threads=None if threads is None else given.whole("threads", threads, least=1),
        memory=given.byte_count("memory", memory),
    )
    report = _reporter(progress=progress)
    last = time.monotonic()
    try:
        # Each wait is short, and between them Python sees Ctrl-C.
        while (packed := packing.wait()) is None:
            now = time.monotonic()
            if now - last >= _BETWEEN_REPORTS:
                last = now
                report(packing.done, packing.total)
        report(packing.total, packing.total)
    finally:
        packing.close()
    documents, tokens, stored = packed
    return Packed(documents=documents, tokens=tokens, dtype=stored, path=os.fspath(path))


def _reporter(*, progress: Progress | bool | None) -> Progress:
    if callable(progress):
        return progress
    if progress is False or not (progress or sys.stderr.isatty()):
        return lambda _done, _total: None
    began = time.monotonic()

    def draw(done: int, total: int) -> None:
        seconds = max(time.monotonic() - began, 1e-9)
        share = done / total if total else 1.0
        line = f"packing: {done:,} of {total:,} documents ({share:.0%}), {done / seconds:,.0f} per second"
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{line}\x1b[K{end}")
        sys.stderr.flush()

    return draw
