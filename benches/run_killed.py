"""Kills brimful at random moments of a run and looks at what is left.

Each time: the record must be readable, the training must go on to its end, and the next start must tell.

    python benches/run_killed.py --brimful target/release/brimful [--rounds 200] [--seed 1]
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

# Prints and allocates for about a second, then leaves a mark that says it came to its end.
TRAINING = """
import pathlib, sys, time
kept = []
for step in range(40):
    kept.append(bytearray(1_000_000))
    print("step", step, flush=True)
    print("a line for standard error", file=sys.stderr, flush=True)
    time.sleep(0.02)
pathlib.Path(sys.argv[1]).write_text("done")
"""


def lines_of(path):
    """Every line but the last must be whole."""
    broken = 0
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            json.loads(line)
        except ValueError:
            broken += 1
            if number < len(lines) - 2:
                return None
    return broken


def one(brimful, folder, delay):
    """Start a run, kill brimful after so many seconds, and tell what is left."""
    state = folder / "state"
    mark = folder / "done"
    with (folder / "out").open("wb") as out:
        # A pipe, so that brimful stands between the training and its reader.
        reader = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=out)
        run = subprocess.Popen(
            [brimful, "run", "-q", "--state-dir", state, "--", sys.executable, "-c", TRAINING, mark],
            stdout=reader.stdin,
            stderr=reader.stdin,
            cwd=folder,
        )
        reader.stdin.close()
        time.sleep(delay)
        os.kill(run.pid, signal.SIGKILL)
        ended_before = run.wait() == 0
        reader.wait(timeout=30)
    records = list(state.glob("runs/*/record.jsonl"))
    next_start = [brimful, "run", "--state-dir", state, "--", "true"]
    done = subprocess.run(next_start, check=False, capture_output=True, text=True, cwd=folder, timeout=30)
    told = done.stderr
    started = bool(records)
    readable = all(lines_of(record) is not None for record in records)
    return {
        "ended_before": ended_before,
        "started": started,
        "readable": readable,
        # A brimful that was killed before it had started the training has nothing to go on.
        "went_on": mark.exists(),
        "attempt": any(b'"line":"attempt"' in record.read_bytes() for record in records),
        "told": "was interrupted" in told,
    }


def main():
    """Run the rounds and count."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--brimful", default="brimful")
    arguments.add_argument("--rounds", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    arguments = arguments.parse_args()
    brimful = (
        str(pathlib.Path(arguments.brimful).resolve()) if "/" in arguments.brimful else arguments.brimful
    )
    chance = random.Random(arguments.seed)
    found = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            found.append(one(brimful, pathlib.Path(folder), chance.uniform(0.0, 1.1)))
        print(f"\r{number + 1} of {arguments.rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    alive = [outcome for outcome in found if not outcome["ended_before"]]
    trained = [outcome for outcome in alive if outcome["attempt"]]
    print(f"killed while it ran:       {len(alive)} of {len(found)}")
    print(f"record readable:           {sum(o['readable'] for o in found)} of {len(found)}")
    print(f"training begun, went on:   {sum(o['went_on'] for o in trained)} of {len(trained)}")
    print(f"the next start told:       {sum(o['told'] for o in trained)} of {len(trained)}")
    good = all(o["readable"] for o in found) and all(o["went_on"] and o["told"] for o in trained)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
