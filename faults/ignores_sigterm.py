"""Is asked to end and does not, like a training that hangs in a collective. Has to be killed."""

import os
import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"ready {os.getpid()}", flush=True)
time.sleep(600)
