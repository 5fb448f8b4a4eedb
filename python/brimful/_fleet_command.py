"""What `brimful runs --at` runs: the program itself does not contain the reader of Parquet files."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from brimful._errors import BrimfulError, InputError, MachineError
from brimful._fleet import survey

if TYPE_CHECKING:
    from collections.abc import Sequence

# The exit codes of the `brimful` program.
_BUG, _INPUT, _MACHINE = 70, 96, 97
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. The program checks and documents the arguments."""
    parser = argparse.ArgumentParser(prog="brimful runs", add_help=False)
    parser.add_argument("at")
    parser.add_argument("--report")
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--width", type=int, default=80)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    shows_progress = sys.stderr.isatty()
    try:
        fleet = survey(
            options.at,
            report=options.report,
            force=options.force,
            width=options.width,
            progress=_show if shows_progress else None,
        )
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrimfulError as error:
        sys.stderr.write(f"error: {error.message}\n")
        for hint in error.hints:
            sys.stderr.write(f"\nhint: {hint}\n")
        if isinstance(error, InputError):
            return _INPUT
        return _MACHINE if isinstance(error, MachineError) else _BUG
    finally:
        if shows_progress:
            sys.stderr.write("\r\x1b[K")
    try:
        sys.stdout.write(fleet.to_json() + "\n" if options.json else str(fleet))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads it has seen enough.
        sys.stderr.close()
        return 0
    if options.report is not None:
        sys.stderr.write(f"brimful: wrote the report {options.report}\n")
    return 0


def _show(n_read: int, n_files: int) -> None:
    sys.stderr.write(f"\r{n_read:,} of {n_files:,} files")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
