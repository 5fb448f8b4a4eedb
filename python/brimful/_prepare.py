"""Prepare datasets as shuffled shards; public as `brimful.prepare`."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brimful import _data_arguments as given
from brimful import _native
from brimful._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from brimful._data_arguments import Path
    from brimful._dataset import Dataset

    Report = Callable[[str], object]

__all__ = ["Prepared", "prepare"]

_BETWEEN_REPORTS = 0.5
_PHASES = {"map": "mapping", "shard": "writing shards"}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared dataset. Open it with `brimful.data.prepared(path)`.

    Attributes:
        path: The directory of the dataset.
        digest: Equal for equal datasets, however they were made.
        samples: Number of samples.
        shards: Number of shards.
        skipped: Samples that failed and were left out.
        skipped_reasons: Why, for the first 100 of them.
        left_out: Samples that `keep` does not name.
        documents: Documents that were packed.
        tokens: Tokens of these documents.
        dropped_tokens: Tokens at the end that fill no block.
        peak_bytes: Highest memory use of this process, without the page cache.
    """

    path: str
    digest: str
    samples: int
    shards: int
    skipped: int
    skipped_reasons: tuple[str, ...]
    left_out: int
    documents: int
    tokens: int
    dropped_tokens: int
    peak_bytes: int


def prepare(  # noqa: PLR0913
    dataset: Dataset,
    out: Path,
    *,
    field: str | None = None,
    tokenizer: Path | None = None,
    block: int | None = None,
    dtype: str | None = None,
    end_id: int | None = None,
    special_tokens: bool = False,
    seed: int = 0,
    shard: int | str = "64MiB",
    split: int | str = "32MiB",
    on_error: str = "raise",
    keep: Path | None = None,
    memory: int | str = "1GiB",
    threads: int | None = None,
    progress: Report | bool | None = None,
    report: Path | None = None,
) -> Prepared:
    """Write a dataset once as globally shuffled shards, within a memory budget.

    The ops of the dataset are applied, and its samples are ordered by a keyed hash and written to files that
    `brimful.data.prepared(out)` opens: tokens as raw files, everything else as Arrow files. The result
    depends on the data and the arguments up to `keep`, but not on `memory` or `threads`.

    An interrupted call loses only the tasks that were running: repeat it with the same arguments to continue.

    Args:
        dataset: A dataset of `brimful.data` whose samples have a fixed shape, or text with `tokenizer`.
        out: The directory to write, or a prefix such as `s3://bucket/shards`; new, empty, or from an
            interrupted call.
        field: The text field, if the dataset has several fields.
        tokenizer: Path of a `tokenizer.json`: tokenize the texts and pack them into blocks.
        block: Tokens per sample; required with `tokenizer`.
        dtype: "uint16" or "uint32"; by default the smaller one that can hold all tokens.
        end_id: Token to add after every document.
        special_tokens: Add the special tokens of the tokenizer to every document.
        seed: Seed of the order and of random ops.
        shard: Approximate size of a shard.
        split: Size of the part of the data that one task processes.
        on_error: "raise" stops at a sample that fails; "skip" leaves it out and counts it.
        keep: Path of a Parquet file with one column that names the samples to keep: `index` with numbers of
            samples, or the name of a field of JSON lines with its values.
        memory: Memory budget without the tokenizer and Python itself.
        threads: Number of threads; by default one per usable CPU, or fewer if the memory budget is too small.
        progress: Function called with a line of text at most twice per second. By default, progress is shown
            on standard error if it is a terminal. False disables it.
        report: Write a report with the first samples to this HTML file. A file that is not a report of
            brimful is refused before the work begins.

    Raises:
        InputError: An argument is invalid, a sample failed, or `out` has other contents.
        MachineError: Files cannot be read or written, or another process is writing to `out`.
    """
    if dataset._functions:  # noqa: SLF001
        raise InputError(
            "a dataset with a `map` function cannot be prepared",
            ["leave `map` out here, and add it to the dataset that `brimful.data.prepared` returns"],
        )
    if tokenizer is None and (special_tokens or any(x is not None for x in (field, dtype, end_id))):
        raise InputError("`field`, `dtype`, `end_id` and `special_tokens` require `tokenizer`")
    recipe = _native.Recipe.of(
        dataset._native,  # noqa: SLF001
        field=field,
        tokenizer=None if tokenizer is None else os.fspath(tokenizer),
        dtype=dtype,
        end_id=end_id,
        special_tokens=special_tokens,
        block=None if block is None else given.whole("block", block, least=1),
        seed=given.whole("seed", seed),
        shard=given.byte_count("shard", shard),
        split=given.byte_count("split", split),
        on_error=on_error,
        keep=None if keep is None else os.fspath(keep),
    )
    if report is not None:
        _native.check_report(os.fspath(report), os.fspath(out))
    budget = given.byte_count("memory", memory)
    prepared, peak = prepare_recipe(
        recipe,
        out,
        memory=budget,
        threads=None if threads is None else given.whole("threads", threads, least=1),
        progress=progress,
    )
    if report is not None:
        recipe.report(os.fspath(out), budget, os.fspath(report), peak)
    return prepared


def prepare_recipe(
    recipe: _native.Recipe,
    out: Path,
    *,
    memory: int,
    threads: int | None,
    progress: Report | bool | None,
) -> tuple[Prepared, int | None]:
    """Prepare a recipe in threads; return the dataset, and the memory peak if it was made now."""
    preparing = _native.Preparing(recipe, os.fspath(out), memory=memory, threads=threads)
    report = reporter(progress=progress)
    began = last = time.monotonic()
    try:
        # Each wait is short, and between them Python sees Ctrl-C.
        while (found := preparing.wait()) is None:
            now = time.monotonic()
            if now - last >= _BETWEEN_REPORTS:
                last = now
                report(_line(preparing.progress, now - began))
        report("")
    finally:
        preparing.close()
    result = json.loads(found)
    prepared = prepared_of(result, os.fspath(out))
    return prepared, None if result["was_finished"] else prepared.peak_bytes


def prepared_of(found: dict[str, Any], out: str) -> Prepared:
    """Return the result from its JSON."""
    manifest = found["manifest"]
    return Prepared(
        path=out,
        digest=manifest["digest"],
        samples=manifest["samples"],
        shards=len(manifest["shards"]),
        skipped=manifest["skipped"]["count"],
        skipped_reasons=tuple(manifest["skipped"]["reasons"]),
        left_out=manifest["left_out"],
        documents=manifest["documents"],
        tokens=manifest["tokens"],
        dropped_tokens=manifest["dropped_tokens"],
        peak_bytes=found["peak_bytes"],
    )


def _line(progress: tuple[str, int, int, int, int, int], seconds: float) -> str:
    phase, done, tasks, done_bytes, all_bytes, peak = progress
    share = done_bytes / all_bytes if all_bytes else 0.0
    parts = [f"{_PHASES[phase]}: {done:,} of {tasks:,} tasks ({share:.0%})"]
    if done_bytes and seconds > 0:
        rate = done_bytes / seconds
        parts.append(f"{_native.size_text(int(rate))}/s")
        parts.append(f"{duration((all_bytes - done_bytes) / rate)} left")
    parts.append(f"{_native.size_text(peak)} of memory")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return hours, minutes and seconds."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def reporter(*, progress: Report | bool | None) -> Report:
    """Return what shows progress: a function of the user, a line on a terminal, or nothing."""
    if callable(progress):
        return progress
    if progress is False or not (progress or (sys.stderr is not None and sys.stderr.isatty())):
        return lambda _line: None

    def draw(line: str) -> None:
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()

    return draw
