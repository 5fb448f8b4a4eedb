"""Documents to one file of tokens; public as `brimful.data.pack`."""

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
    """A file of tokens, and how many documents are in it. `brimful.data.tokens` opens it."""

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
    """Turn the texts of a dataset into one file of tokens, in their order and inside bounded memory.

    Where each document begins stands in `path` + ".documents"; `tokens(path, length, documents=True)` reads
    both. Until they are whole, the files are called `path` + ".part" and `path` + ".documents.part": a
    packing that is killed leaves nothing under the final names. The files do not depend on how many threads
    there are.

    Documents longer than 128 KiB are encoded in pieces that are cut before a space, where most tokenizers see
    no difference.

    Args:
        dataset: What the functions of `brimful.data` give.
        field: Its field that is the text.
        tokenizer: A `tokenizer.json`, or a folder that has one.
        path: The file to write. What is there is replaced at the end.
        dtype: "uint16" or "uint32"; without it the smaller one that all tokens fit into.
        end_id: A token to put behind every document.
        special_tokens: Put the tokenizer's own special tokens around every document.
        threads: As many as this process may use processors, unless the memory is too little for all of them.
        memory: All that it may hold, besides the tokenizer: bytes, or text such as "256MiB".
        progress: Called with the documents that are done and all of them, at most twice per second; without
            it, a line on standard error shows them where that is a terminal. False for silence.

    Raises:
        InputError: A document is not text, with its place in the dataset; or an argument cannot be.
        MachineError: The files cannot be written, or somebody else is writing them.
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
