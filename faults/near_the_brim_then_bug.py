"""Comes near the container's limit, so that a watcher warns, draws back, and dies of an ordinary mistake."""

import time

kept = []
for step in range(280):
    kept.append(b"x" * (512 << 10))
    if step % 50 == 0:
        print(f"step {step}", flush=True)
    time.sleep(0.01)
del kept
time.sleep(0.5)
print({"loss": 0.25}["accuracy"])
