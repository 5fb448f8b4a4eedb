"""How short memory is, as `brimful run` tells it to the training that it watches."""

from __future__ import annotations

import os
import time
from pathlib import Path

_EVERY_SECONDS = 0.5


class RunPressure:
    """Looks at the file that `brimful run` keeps, at most twice a second.

    Whatever is wrong with it, there is no pressure then: a supervisor never makes things worse.
    """

    def __init__(self) -> None:
        """Find the file, where this process runs below `brimful run`."""
        gauges = os.environ.get("BRIMFUL_GAUGES")
        self._path = Path(gauges) / "pressure" if gauges else None
        self._due = 0.0

    def news(self) -> float | None:
        """Return the pressure from 0 to 1, or nothing when it is not yet time to look."""
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
