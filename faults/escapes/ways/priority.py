"""Change another process's priority, limits, processors and how early it is killed."""

import os
import resource
from pathlib import Path

from way import PID, all_of, attempt

KIND = "processes"
EXPECTED = {"overlay": "absent", "redirect": "denied"}

attempt(
    all_of(
        lambda: os.setpriority(os.PRIO_PROCESS, PID, 15),
        lambda: os.sched_setaffinity(PID, {0}),
        lambda: resource.prlimit(PID, resource.RLIMIT_NOFILE, (100, 100)),
        lambda: Path(f"/proc/{PID}/oom_score_adj").write_text("900"),
    )
)
