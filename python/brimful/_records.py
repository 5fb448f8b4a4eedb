"""What `brimful run --records` starts: writes the rows of runs that have ended."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from brimful import _native
from brimful._errors import BrimfulError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Write what is to be written, and return an exit code."""
    parser = argparse.ArgumentParser(prog="python -m brimful._records")
    parser.add_argument("destination")
    parser.add_argument("--ended")
    parser.add_argument("--state-dir")
    options = parser.parse_args(arguments)
    try:
        _native.record_runs(options.destination, ended=options.ended, state_dir=options.state_dir)
    except BrimfulError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
