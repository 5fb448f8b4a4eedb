"""End another process."""

import os
import signal

from way import PID, attempt

KIND = "processes"
EXPECTED = {"overlay": "absent", "redirect": "denied"}

attempt(lambda: os.kill(PID, signal.SIGTERM))
