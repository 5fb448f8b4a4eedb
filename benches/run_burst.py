"""A training that suddenly takes 1 GB/s in a control group of 2 GB, and its checkpoint.

Is it written before the kernel kills? Needs the right to make control groups (root). Each round brimful and
the training start inside of the group, the training takes 16 MB every 16 ms and never stops, and writes a
checkpoint of 64 MB when SIGUSR1 comes.

    python benches/run_burst.py --brimful target/release/brimful [--rounds 20] [--rate 1.0]
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from groups import Group

TRAINING = """
import os, pathlib, signal, sys, time
folder, rate = pathlib.Path(sys.argv[1]), float(sys.argv[2])
state = os.urandom(1 << 20) * 64

def save(signum, frame):
    (folder / "asked").touch()
    with open(folder / "part", "wb") as file:
        for start in range(0, len(state), 1 << 20):
            file.write(memoryview(state)[start:start + (1 << 20)])
        file.flush()
        os.fsync(file.fileno())
    os.rename(folder / "part", folder / "checkpoint")

signal.signal(signal.SIGUSR1, save)
time.sleep(1.5)
kept, piece, page = [], 16 << 20, b"x" * (16 << 20)
began = time.perf_counter()
while True:
    kept.append(bytearray(page))
    due = began + len(kept) * piece / (rate * 1e9)
    wait = due - time.perf_counter()
    if wait > 0:
        time.sleep(wait)
"""


def one(brimful, limit, rate, number):
    """Tell whether the signal came, the checkpoint was written, and the kernel killed in the end."""
    group = Group(f"brimful-burst-{os.getpid()}-{number}", limit)
    try:
        with tempfile.TemporaryDirectory() as folder:
            command = [brimful, "run", "--state-dir", f"{folder}/state", "--on-pressure", "checkpoint", "--"]
            command += [sys.executable, "-c", TRAINING, folder, str(rate)]
            run = group.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            _, said = run.communicate(timeout=60)
            asked = pathlib.Path(folder, "asked").exists()
            saved = pathlib.Path(folder, "checkpoint").exists()
            killed = run.returncode == -signal.SIGKILL
            return asked, saved, killed, said.decode()
    finally:
        group.remove()


def main():
    """Run the rounds and count."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--brimful", default="brimful")
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--rate", type=float, default=1.0, help="GB per second")
    arguments.add_argument("--limit", type=float, default=2.0, help="GB")
    arguments = arguments.parse_args()
    found = []
    for number in range(arguments.rounds):
        found.append(one(arguments.brimful, int(arguments.limit * 1e9), arguments.rate, number))
        asked, saved, killed, said = found[-1]
        if not saved:
            print(f"round {number}: asked {asked}, saved {saved}, killed {killed}\n{said}", file=sys.stderr)
    n_asked, n_saved, n_killed = (sum(outcome[idx] for outcome in found) for idx in range(3))
    print(f"signal came {n_asked}, checkpoint written {n_saved}, then killed {n_killed}, of {len(found)}")
    sys.exit(0 if n_saved >= 0.95 * len(found) else 1)


if __name__ == "__main__":
    main()
