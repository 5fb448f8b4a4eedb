"""Fills most of the container's limit and trains on, until somebody kills everything in the container.

trains_on_at_the_brim.py MIB
"""

import os
import sys
import time

kept = b"x" * (int(sys.argv[1]) << 20)
time.sleep(2)
print(f"ready {os.getpid()}", flush=True)
time.sleep(60)
