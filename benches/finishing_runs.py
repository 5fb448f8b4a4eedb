"""Trainings that finish, two at a time, and how many of them were told that memory runs out.

Every alarm about host memory of a run that finished did not come true. Each training runs under `brimful run`
beside another one, on the machine as it is, or with `--limit` both inside of one control group (needs root).

    python benches/finishing_runs.py --brimful PROGRAM --python PATH [--runs 50] [--limit 4] [SCRIPT …]

PATH is a Python with torch and numpy. Further scripts are run as they are, on the processors.
"""

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

from groups import Group

START = """
import os, pathlib, sys, time
import numpy as np
def hold(mib):
    return np.ones(int(mib) << 17)
def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(20000))
"""
TORCH = (
    START
    + """
import torch
torch.set_num_threads(1)
def train(seconds, width=512, batch=256, save=None):
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        loss = model(torch.randn(batch, width)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if save:
        torch.save(model.state_dict(), save)
"""
)
LOADER = """
class Data(torch.utils.data.Dataset):
    def __init__(self, mib):
        self.rows = hold(mib).reshape(-1, 512)
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, at):
        return torch.from_numpy(self.rows[at].astype("float32"))
def epochs(n, mib, workers):
    model = torch.nn.Linear(512, 10)
    for _ in range(n):
        loader = torch.utils.data.DataLoader(Data(mib), 256, shuffle=True, num_workers=workers)
        for batch in loader:
            model(batch).sum().backward()
"""
# What trainings do that end well.
PIECES = """
data = []
for i in range({n}):
    data.append(hold({mib}))
    work({seconds})
"""
TRAININGS = {
    "small model": TORCH + "train(8)",
    "large start": TORCH + "data = hold(900)\ntrain(10)",
    "start in pieces": TORCH + PIECES.format(n=60, mib=15, seconds=0.1) + "train(12)",
    "slow start": TORCH + PIECES.format(n=90, mib=9, seconds=0.2) + "train(8)",
    "parse a file": START
    + """
rows = []
for i in range(12):
    rows.append([str(i) * 9 for _ in range(400000)])
    work(0.2)
work(8)
""",
    "grows and falls": START
    + """
for i in range(8):
    x = hold(300 + 90 * i)
    work(1)
    del x
""",
    "sawtooth": START
    + """
for i in range(20):
    kept = []
    for j in range(8):
        kept.append(hold(90))
        work(0.12)
""",
    "two workers": TORCH + LOADER + "epochs(2, 150, 2)",
    "no workers": TORCH + LOADER + "epochs(2, 250, 0)",
    "cache that fills": TORCH
    + """
cache = {}
for i in range(70):
    cache[i] = hold(12)
    train(0.15)
train(8)
""",
    "checkpoints": TORCH
    + """
big = torch.zeros(60 << 20)
for i in range(4):
    train(2)
    torch.save({"x": big}, "c.pt")
""",
    "page cache": START
    + """
piece = os.urandom(1 << 20)
with open("data.bin", "wb") as file:
    for i in range(1500):
        file.write(piece)
for i in range(4):
    with open("data.bin", "rb") as file:
        while file.read(1 << 20):
            pass
work(3)
""",
    "shared memory": START
    + """
from multiprocessing import shared_memory
shared = shared_memory.SharedMemory(create=True, size=500 << 20)
np.ndarray((500 << 17,), buffer=shared.buf)[:] = 1
work(9)
shared.close()
shared.unlink()
""",
    "steps of a curriculum": TORCH + "for n in range(1, 9):\n    train(1.5, batch=256 * n)",
    "evaluation": TORCH
    + """
for i in range(3):
    train(3)
    kept = [hold(60) for _ in range(8)]
    work(0.5)
    del kept
""",
    "traced model": TORCH + "torch.jit.trace(torch.nn.Linear(64, 64), torch.randn(4, 64))\ntrain(6)",
    "numpy in place": START + "x = hold(700)\nfor i in range(20):\n    x *= 1.0001\n    work(0.3)",
    "ends early": START + "x = hold(400)\nwork(2)",
}
ALARM = re.compile(r"^brimful: (?:note|warning|critical): .*$", re.MULTILINE)


class Bench:
    """The runs, started in pairs."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.found = []
        self.lock = threading.Lock()

    def commands(self):
        """As many as asked for, the scripts spread among the trainings."""
        python = self.arguments.python
        own = [(name, [python, "-c", text]) for name, text in TRAININGS.items()]
        given = [(path.name, [python, str(path.resolve())]) for path in self.arguments.scripts]
        every = [entry for pair in zip(own, given, strict=False) for entry in pair]
        every += own[len(given) :] + given[len(own) :]
        return [every[number % len(every)] for number in range(self.arguments.runs)]

    def run_one(self, name, command, group):
        """Run one training and keep what was said about it."""
        with tempfile.TemporaryDirectory() as folder:
            run = [
                self.arguments.brimful,
                "run",
                "--state-dir",
                f"{folder}/state",
                "--no-status",
                "--",
                *command,
            ]
            environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
            pipes = {
                "cwd": folder,
                "env": environment,
                "stdout": subprocess.DEVNULL,
                "stderr": subprocess.PIPE,
            }
            started = group.start(run, **pipes) if group else subprocess.Popen(run, **pipes)
            try:
                _, said = started.communicate(timeout=self.arguments.timeout)
            except subprocess.TimeoutExpired:
                started.terminate()
                _, said = started.communicate()
            text = said.decode(errors="replace")
            with self.lock:
                self.found.append((name, started.returncode, ALARM.findall(text)))

    def run_all(self):
        """Run all of them, two at a time."""
        commands = self.commands()
        limit = self.arguments.limit and int(self.arguments.limit * 1e9)
        for at in range(0, len(commands), 2):
            with contextlib.ExitStack() as stack:
                group = None
                if limit:
                    group = Group(f"brimful-finishing-{os.getpid()}-{at}", limit)
                    stack.callback(group.remove)
                threads = [
                    threading.Thread(target=self.run_one, args=(*one, group)) for one in commands[at : at + 2]
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                for name, code, alarms in self.found[-len(threads) :]:
                    print(f"{name}: exit code {code}", *alarms, sep="\n  ", flush=True)


def main():
    """Run the trainings and count the alarms of those that finished."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brimful", default="brimful")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--limit", type=float, help="GB for both of a pair")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("scripts", nargs="*", type=pathlib.Path)
    bench = Bench(parser.parse_args())
    bench.run_all()
    finished = [(name, alarms) for name, code, alarms in bench.found if code == 0]
    false = [(name, alarms) for name, alarms in finished if alarms]
    print(
        f"finished {len(finished)} of {len(bench.found)}, with an alarm that did not come true {len(false)}"
    )
    sys.exit(0 if len(false) <= 0.04 * len(finished) else 1)


if __name__ == "__main__":
    main()
