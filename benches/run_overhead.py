"""What `brimful run` costs a real training loop on the CPU with two DataLoader workers.

    python benches/run_overhead.py --brimful target/release/brimful --python PATH [--seconds 240]

PATH is a Python that has torch. On a shared machine two whole runs differ by more than brimful costs, so with
and without take turns inside of one run: brimful is stopped and let go on every second, and the steps of
neighboring seconds are compared. Prints the median slowdown over these pairs, and what the supervisor itself
took: share of a core and resident memory. What the hook inside of the training costs stands in every
second; it is measured apart, per step.
"""

import argparse
import itertools
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TRAINING = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
torch.set_num_threads(1)

class Pictures(Dataset):
    def __len__(self):
        return 10**6
    def __getitem__(self, idx):
        generator = torch.Generator().manual_seed(idx)
        return torch.randn(3, 32, 32, generator=generator), idx % 10

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(),
    torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters())
end = time.monotonic() + float(sys.argv[1])
times = []
for inputs, labels in DataLoader(Pictures(), batch_size=8, num_workers=2):
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    times.append(time.monotonic())
    if times[-1] > end:
        break
with open(sys.argv[2], "w") as file:
    file.write("\\n".join(map(str, times)))
"""

HOOK = """
import sys, time
import torch

weight = torch.nn.Parameter(torch.zeros(1))
weight.grad = torch.zeros(1)
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2000):
    optimizer.step()
best = []
for _ in range(30):
    began = time.process_time()
    for _ in range(1000):
        optimizer.step()
    best.append((time.process_time() - began) / 1000)
with open(sys.argv[1], "w") as file:
    file.write(str(min(best)))
"""

# Steps this shortly after a turn belong to neither.
EDGE = 0.1


def cpu_of(pid):
    """Seconds that a process has had on a processor."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_of(pid):
    """Resident bytes of a process at the most."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def slowdowns(times, turns):
    """How much slower the steps are in each second with than in the one without that follows it."""
    rates = []
    for start, end in itertools.pairwise(turns):
        steps = [moment for moment in times if start + EDGE < moment < end]
        rates.append((len(steps) - 1) / (steps[-1] - steps[0]) if len(steps) > 5 else None)
    pairs = [(on, off) for on, off in zip(rates[0::2], rates[1::2], strict=False) if on and off]
    return [off / on - 1 for on, off in pairs]


def interleaved(brimful, python, seconds):
    """Slowdown of each pair of seconds, the supervisor's share of a core, its resident bytes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [brimful, "run", "-q", "--state-dir", folder, "--", python, "-c", TRAINING]
        run = subprocess.Popen([*command, str(seconds), f"{folder}/times"])
        # Importing and the first steps are not compared.
        time.sleep(15)
        turns, began, first_cpu = [], time.monotonic(), cpu_of(run.pid)
        while time.monotonic() - began < seconds - 30 and run.poll() is None:
            is_on = len(turns) % 2 == 0
            os.kill(run.pid, signal.SIGCONT if is_on else signal.SIGSTOP)
            turns.append(time.monotonic())
            time.sleep(1)
        os.kill(run.pid, signal.SIGCONT)
        share = (cpu_of(run.pid) - first_cpu) / (time.monotonic() - began) * 2
        resident = resident_of(run.pid)
        if run.wait() != 0:
            sys.exit("the training failed")
        times = [float(line) for line in pathlib.Path(folder, "times").read_text().split()]
    return slowdowns(times, turns), share, resident


def hook_per_step(brimful, python):
    """Seconds of a step with the hook and without it, the best of several runs each, in turns."""
    found = {"hook": [], "none": []}
    for _ in range(4):
        for name, option in (("hook", []), ("none", ["--no-hook"])):
            with tempfile.TemporaryDirectory() as folder:
                command = [brimful, "run", "-q", "--state-dir", folder, *option, "--", python, "-c", HOOK]
                subprocess.run([*command, f"{folder}/took"], check=True)
                found[name].append(float(pathlib.Path(folder, "took").read_text()))
    return min(found["hook"]) - min(found["none"])


def main():
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--brimful", default="brimful")
    arguments.add_argument("--python", default=sys.executable)
    arguments.add_argument("--seconds", type=float, default=240)
    arguments = arguments.parse_args()
    slower, share, resident = interleaved(arguments.brimful, arguments.python, arguments.seconds)
    middle = statistics.median(slower)
    quarters = statistics.quantiles(slower, n=4)
    # The half width of a 95 % interval of the median, by its normal approximation.
    doubt = 1.25 * 1.96 * statistics.stdev(slower) / len(slower) ** 0.5
    print(
        f"slowdown, median of {len(slower)} pairs of neighboring seconds: {middle * 100:+.2f} % "
        f"(give or take {doubt * 100:.2f}; quarters {quarters[0] * 100:+.1f} and {quarters[2] * 100:+.1f})"
    )
    print(f"supervisor: {share * 100:.2f} % of a core, peak resident memory {resident / 1e6:.1f} MB")
    print(f"hook: {hook_per_step(arguments.brimful, arguments.python) * 1e9:.0f} ns per optimizer step")


if __name__ == "__main__":
    main()
