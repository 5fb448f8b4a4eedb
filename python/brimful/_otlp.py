"""What `brimful run --otlp` starts: sends the metrics of a run until its supervisor ends."""

from __future__ import annotations

import argparse
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Seconds between two looks at the record.
_INTERVAL = 1.0
# Messages of one run: a collector that comes and goes is no news after these.
_MAX_MESSAGES = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Follow the run until standard input ends. The process that was started ends at once."""
    parser = argparse.ArgumentParser(prog="python -m brimful._otlp")
    parser.add_argument("--supervisor", type=int, required=True)
    parser.add_argument("--since", type=int, required=True)
    parser.add_argument("--url")
    parser.add_argument("--state-dir")
    options = parser.parse_args(arguments)
    # No descendant of the supervisor, which would take it for a process of the job.
    if os.fork():
        os._exit(0)
    os.setsid()
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    try:
        _follow(options)
    except Exception as error:  # noqa: BLE001
        _say(f"no metrics are sent: {getattr(error, 'message', error)}")
    return 0


def _follow(options: argparse.Namespace) -> None:
    # Only here: threads do not survive a fork.
    import socket  # noqa: PLC0415

    from brimful import _native  # noqa: PLC0415

    exporter = _native.OtlpExporter(
        url=options.url,
        supervisor_pid=options.supervisor,
        since_unix_ms=options.since,
        host_name=socket.gethostname(),
        state_dir=options.state_dir,
    )
    told: str | None = None
    n_told = 0
    while True:
        ended = bool(select.select([0], [], [], _INTERVAL)[0])
        error = exporter.poll()
        if ended:
            error = exporter.shut_down()
        if error is not None and told is None and n_told < _MAX_MESSAGES:
            _say(f"metrics do not reach the collector: {error}")
            n_told += 1
        told = error
        if ended:
            return


def _say(message: str) -> None:
    try:
        sys.stdout.write(" ".join(message.split()) + "\n")
        sys.stdout.flush()
    except OSError:
        # The supervisor was killed.
        return


if __name__ == "__main__":
    sys.exit(main())
