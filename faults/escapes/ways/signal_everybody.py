"""Signal every process that may be signalled, and a process group."""

import os
import signal

from way import PID, all_of, attempt

KIND = "processes"
EXPECTED = {"overlay": "absent", "redirect": "denied"}

signal.signal(signal.SIGTERM, signal.SIG_IGN)
attempt(all_of(lambda: os.killpg(PID, signal.SIGTERM), lambda: os.kill(-1, signal.SIGURG)))
