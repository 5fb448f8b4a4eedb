"""Keeps a little of every step, as `losses.append(loss)` does with a graph behind each loss.

Dies of the container's limit after some seconds of steady growth, which a watcher can see coming.

    slow_leak.py [--ignore-sigterm]
"""

import signal
import sys
import time

if "--ignore-sigterm" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

kept = []
for step in range(100_000):
    kept.append(b"x" * (512 << 10))
    if step % 50 == 0:
        print(f"step {step}", flush=True)
    time.sleep(0.01)
