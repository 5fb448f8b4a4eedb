"""Trains until somebody stops it. What ends it comes from outside, after a second."""

import os
import time

for step in range(6000):
    if step % 10 == 0:
        print(f"step {step}", flush=True)
    if step == 100:
        print(f"ready {os.getpid()}", flush=True)
    time.sleep(0.01)
