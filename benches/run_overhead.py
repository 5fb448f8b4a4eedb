"""What `brimful run` costs: a real training loop on the CPU with two DataLoader workers, with and without, in turns.

    python benches/run_overhead.py --brimful target/release/brimful --python PATH [--rounds 7] [--steps 400]

PATH is a Python that has torch. Prints the median of with/without over the interleaved pairs, and what the supervisor
itself took: share of a core and resident memory.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# Times only its loop, so that starting Python and importing torch do not hide or help.
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
    torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU(),
    torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters())
steps = int(sys.argv[1])
loader = iter(DataLoader(Pictures(), batch_size=32, num_workers=2))
for step in range(steps + 20):
    if step == 20:
        began = time.perf_counter()
    inputs, labels = next(loader)
    loss = torch.nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
took = time.perf_counter() - began
with open(sys.argv[2], "w") as file:
    file.write(str(took))
"""


def ticks_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_of(pid):
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    return 0


def timed(command, watch):
    """Seconds of the loop; of the supervisor, its share of a core and its resident memory at the most."""
    with tempfile.TemporaryDirectory() as folder:
        figures = f"{folder}/took"
        full = [word.replace("FIGURES", figures).replace("STATE", folder) for word in command]
        run = subprocess.Popen(full, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cost = {"cpu": 0.0, "resident": 0}
        began = time.perf_counter()

        def look():
            while run.poll() is None:
                try:
                    cost["cpu"] = ticks_of(run.pid)
                    cost["resident"] = max(cost["resident"], resident_of(run.pid))
                except (OSError, IndexError):
                    return
                time.sleep(0.5)

        thread = threading.Thread(target=look)
        if watch:
            thread.start()
        code = run.wait()
        seconds = time.perf_counter() - began
        if watch:
            thread.join()
        if code != 0:
            sys.exit(f"{' '.join(full)} ended with {code}")
        with open(figures) as file:
            return float(file.read()), cost["cpu"] / seconds, cost["resident"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--brimful", default="brimful")
    arguments.add_argument("--python", default=sys.executable)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--steps", type=int, default=400)
    arguments = arguments.parse_args()
    training = [arguments.python, "-c", TRAINING, str(arguments.steps), "FIGURES"]
    supervised = [arguments.brimful, "run", "-q", "--state-dir", "STATE", "--", *training]
    ratios, shares, resident = [], [], []
    for number in range(arguments.rounds):
        # Whoever comes first may find a colder machine: take turns.
        if number % 2 == 0:
            without, _, _ = timed(training, False)
            with_it, share, size = timed(supervised, True)
        else:
            with_it, share, size = timed(supervised, True)
            without, _, _ = timed(training, False)
        ratios.append(with_it / without)
        shares.append(share)
        resident.append(size)
        print(f"round {number + 1}: {without:.2f} s without, {with_it:.2f} s with", file=sys.stderr)
    print(f"slowdown, median of {len(ratios)} pairs: {(statistics.median(ratios) - 1) * 100:+.2f} %")
    print(f"  each: {', '.join(f'{(ratio - 1) * 100:+.1f}' for ratio in sorted(ratios))} %")
    print(f"supervisor: {statistics.median(shares) * 100:.2f} % of a core, {max(resident) / 1e6:.1f} MB resident")


if __name__ == "__main__":
    main()
