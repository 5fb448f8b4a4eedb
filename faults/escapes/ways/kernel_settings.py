"""Change settings of the kernel and the clock."""

import time
from pathlib import Path

from way import all_of, attempt

KIND = "machine"
EXPECTED = {"overlay": "denied", "redirect": "denied"}

attempt(
    all_of(
        lambda: Path("/proc/sys/kernel/panic").write_text("17"),
        lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
    )
)
