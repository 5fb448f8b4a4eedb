"""One element of a Slurm array of `brimful prepare --on slurm`; also for any other scheduler with arrays."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from brimful import _native
from brimful._errors import BrimfulError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every task of this element, and return an exit code."""
    parser = argparse.ArgumentParser(prog="python -m brimful._prepare_task")
    parser.add_argument("out")
    parser.add_argument("phase", choices=["map", "tails", "shard", "finish"])
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--element", type=int, default=0)
    parser.add_argument("--of", type=int, default=1)
    options = parser.parse_args(arguments)
    try:
        if options.phase == "finish":
            coordinator = _native.TaskCoordinator(options.out)
            sys.stdout.write((coordinator.finished or coordinator.finish()) + "\n")
        elif options.phase == "tails":
            tasks, _ = _native.prepare_tasks(options.out)
            _native.run_prepare_task(options.out, "map", tasks, options.memory)
        else:
            tasks, shards = _native.prepare_tasks(options.out)
            of_phase = tasks if options.phase == "map" else shards
            if of_phase is None:
                raise InputError("shard tasks require that all map tasks and `tails` have finished")
            if not 0 <= options.element < options.of:
                raise InputError(f"expected `--element` below {options.of} (`--of`), found {options.element}")
            for task in range(options.element, of_phase, options.of):
                _native.run_prepare_task(options.out, options.phase, task, options.memory)
    except BrimfulError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
