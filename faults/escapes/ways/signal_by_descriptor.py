"""End another process through a descriptor of it."""

import os
import signal

from way import PID, attempt

KIND = "processes"
EXPECTED = {"overlay": "absent", "redirect": "denied"}

attempt(lambda: signal.pidfd_send_signal(os.pidfd_open(PID), signal.SIGTERM))
