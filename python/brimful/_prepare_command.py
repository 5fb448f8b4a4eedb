"""What `brimful prepare` runs: the program itself does not contain the loader."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brimful import _data_arguments as given
from brimful import _native
from brimful._errors import BrimfulError, InputError, MachineError
from brimful._prepare import duration, prepare_recipe, prepared_of, reporter
from brimful._prepare_cluster import on_ray, on_slurm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brimful._prepare import Prepared

# The exit codes of the `brimful` program.
_BUG, _INPUT, _MACHINE = 70, 96, 97
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. The program checks and documents the arguments."""
    parser = argparse.ArgumentParser(prog="brimful prepare", add_help=False)
    parser.add_argument("recipe")
    parser.add_argument("--out", required=True)
    parser.add_argument("--memory", required=True)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--keep")
    parser.add_argument("--on")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--report")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; finished tasks are kept: run the same command again to continue\n")
        return _INTERRUPTED
    except BrimfulError as error:
        sys.stderr.write(f"error: {error.message}\n")
        for hint in error.hints:
            sys.stderr.write(f"hint: {hint}\n")
        if isinstance(error, InputError):
            return _INPUT
        return _MACHINE if isinstance(error, MachineError) else _BUG


def _run(options: argparse.Namespace) -> int:
    recipe = _native.Recipe.read(options.recipe, options.keep)
    memory = given.byte_count("memory", options.memory)
    if options.report is not None and options.on == "slurm" and not options.dry_run:
        raise InputError(
            "`--report` requires a finished dataset, and Slurm jobs finish later",
            ["when they have ended, run the same command with `--report` and without `--on slurm`"],
        )
    if options.report is not None:
        _native.check_report(options.report, options.out)
    if options.dry_run:
        estimate = json.loads(recipe.estimate(options.out, memory, options.report))
        sys.stdout.write(json.dumps(estimate) + "\n" if options.json else _estimate_text(estimate))
        _tell_report(options.report)
        return _check_space(estimate, options.out)
    if options.on == "slurm":
        jobs, text = on_slurm(recipe, options.out, memory=memory)
        sys.stdout.write((json.dumps({"path": options.out, "jobs": jobs}) if options.json else text) + "\n")
        return 0
    peak = None
    if options.on is None:
        prepared, peak = prepare_recipe(
            recipe, options.out, memory=memory, threads=options.threads, progress=None
        )
    else:
        address = options.on if options.on.startswith("ray://") else None
        report = reporter(progress=None)
        # Ray prints what happens to its nodes.
        with contextlib.redirect_stdout(sys.stderr):
            found = on_ray(recipe, options.out, memory=memory, address=address, report=report)
        report("")
        prepared = prepared_of(json.loads(found), options.out)
    if options.json:
        sys.stdout.write(json.dumps(asdict(prepared)) + "\n")
    else:
        sys.stdout.write(_text(prepared))
    if options.report is not None:
        # A report that fails now costs no result.
        sys.stdout.flush()
        recipe.report(options.out, memory, options.report, peak)
        _tell_report(options.report)
    return 0


def _tell_report(path: str | None) -> None:
    if path is not None:
        sys.stderr.write(f"brimful: wrote the report {path}\n")


def _text(prepared: Prepared) -> str:
    size = _native.size_text
    lines = [f"{_count(prepared.samples, 'sample')} in {_count(prepared.shards, 'shard')}: {prepared.path}"]
    if prepared.documents:
        lines.append(
            f"{prepared.documents:,} documents, {prepared.tokens:,} tokens"
            f" ({prepared.dropped_tokens:,} at the end fill no block)"
        )
    if prepared.left_out:
        lines.append(f"{_count(prepared.left_out, 'sample')} left out by keep")
    if prepared.skipped:
        lines.append(f"{prepared.skipped:,} samples skipped, for example: {prepared.skipped_reasons[0]}")
    lines.append(f"digest {prepared.digest}, memory peak {size(prepared.peak_bytes)}")
    lines.append(f'load it with brimful.data.prepared("{prepared.path}")')
    return "\n".join(lines) + "\n"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _estimate_text(estimate: dict[str, Any]) -> str:
    size = _native.size_text
    needed = size(estimate["run_bytes"] + estimate["shard_bytes"])
    free = estimate["free_bytes"]
    space = f"object store: {needed} needed" if free is None else f"disk: {needed} needed, {size(free)} free"
    return (
        f"{_count(estimate['map_tasks'], 'task')} to read {size(estimate['input_bytes'])}"
        f" and write {size(estimate['run_bytes'])} of temporary runs\n"
        f"{_count(estimate['shards'], 'task')} to write {size(estimate['shard_bytes'])} of shards\n"
        f"about {duration(estimate['cpu_seconds'])} of one CPU for the former, from a trial of one task\n"
        f"{space}\n"
    )


def _check_space(estimate: dict[str, Any], out: str) -> int:
    needed = estimate["run_bytes"] + estimate["shard_bytes"]
    if estimate["free_bytes"] is None or needed <= estimate["free_bytes"]:
        return 0
    sizes = (_native.size_text(needed), _native.size_text(estimate["free_bytes"]))
    raise MachineError(
        f"not enough space for {out}: about {sizes[0]} are needed, {sizes[1]} are free",
        ["name a directory on another disk"],
    )


if __name__ == "__main__":
    sys.exit(main())
