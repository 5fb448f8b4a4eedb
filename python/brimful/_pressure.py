"""Memory pressure, as `brimful run` reports it to the training process."""

from __future__ import annotations

import os
import time
from pathlib import Path

_EVERY_SECONDS = 0.5


class RunPressure:
    """Reads the pressure file of `brimful run`, at most twice a second.

    If the file cannot be read, the pressure is zero.
    """

    def __init__(self) -> None:
        """Find the file, if this process runs under `brimful run`."""
        gauges = os.environ.get("BRIMFUL_GAUGES")
        self._path = Path(gauges) / "pressure" if gauges else None
        self._due = 0.0

    def news(self) -> float | None:
        """Return the pressure from 0 to 1, or None if it is not yet time to read it again."""
        if self._path is None:
            return None
        now = time.monotonic()
        if now < self._due:
            return None
        self._due = now + _EVERY_SECONDS
        try:
            with self._path.open("rb") as file:
                thousandths = int(file.read(5))
        except (OSError, ValueError):
            return 0.0
        return min(max(thousandths / 1000, 0.0), 1.0)
