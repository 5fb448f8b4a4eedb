"""A list of texts, plain and shared, read by a DataLoader: memory of all processes, and random access.

    python benches/share/text.py [--megabytes 400] [--workers 4] [--epochs 1] [--json FILE]

For each start method the same script runs in a control group without a limit, once without workers and once
with them. Anonymous and shared memory of the whole group are read every 20 ms while an epoch goes by, so
what loading the texts takes is left out. "none" is the same with hardly any text: what Python and torch take
in each process, which no sharing changes; "net" is what is left without it. Then texts are read in random
order in one process, plain and shared in turns. Needs torch, and the right to make control groups.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

METHODS = ("fork", "forkserver", "preload", "spawn")  # "preload": a forkserver that has imported torch
KINDS = ("none", "plain", "shared", "disk")


def texts(megabytes, seed=1):
    """Texts of 200 to 1000 characters, made one by one."""
    rng = random.Random(seed)
    source = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz     ,.") for _ in range(1 << 20))
    left = megabytes * 1_000_000
    while left > 0:
        length = rng.randrange(200, 1000)
        start = rng.randrange(len(source) - length)
        yield source[start : start + length]
        left -= length


class Texts:
    """A Dataset as people write it."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        """Count them."""
        return len(self.data)

    def __getitem__(self, idx):
        """Look at one."""
        return len(self.data[idx])


def made(kind, megabytes):
    """Return the texts as a list, or shared without ever being one; for "none" a thousandth of them."""
    if kind == "none":
        return list(texts(megabytes // 1000 or 1))
    if kind == "plain":
        return list(texts(megabytes))
    import brimful

    return brimful.share(texts(megabytes), where="memory" if kind == "shared" else "disk")


def train(kind, method, arguments):
    """Read all texts. Says when the texts are there, when an epoch is done, and how long it took."""
    from torch.utils.data import DataLoader

    workers = arguments.workers
    if method == "preload":
        multiprocessing.set_forkserver_preload(["torch"])
        method = "forkserver"
    data = Texts(made(kind, arguments.megabytes))
    print("ready", flush=True)
    loader = DataLoader(
        data,
        batch_size=256,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context=method if workers else None,
        persistent_workers=bool(workers),
    )
    for _ in range(arguments.epochs):
        start, total = time.perf_counter(), 0
        for batch in loader:
            total += int(batch.sum())
        print(json.dumps({"seconds": time.perf_counter() - start, "total": total}), flush=True)


class Group:
    """A control group of the memory controller, v2 or v1, without a limit."""

    def __init__(self, name):
        root = pathlib.Path("/sys/fs/cgroup")
        self.v2 = (root / "cgroup.subtree_control").exists()
        self.folder = (root if self.v2 else root / "memory") / name
        self.folder.mkdir()

    def start(self, command, **named):
        """Start a command inside of the group."""
        join = 'echo 0 > "$0/cgroup.procs" && exec "$@"'
        return subprocess.Popen(["/bin/sh", "-c", join, self.folder, *command], **named)

    def use(self):
        """Return anonymous, shared and file bytes."""
        lines = (self.folder / "memory.stat").read_text().splitlines()
        found = dict(line.split() for line in lines)
        names = ("anon", "shmem", "file") if self.v2 else ("total_rss", "total_shmem", "total_cache")
        return tuple(int(found[name]) for name in names)

    def remove(self):
        """The kernel refuses while a killed process is still being taken apart."""
        for _ in range(200):
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            if not self.folder.exists():
                return
            time.sleep(0.02)


def measure(arguments, kind, workers, method):
    """Run one cell; the highest use while it reads."""
    group = Group(f"brimful-share-{os.getpid()}")
    command = [sys.executable, __file__, "--train", kind, method]
    command += ["--megabytes", str(arguments.megabytes), "--workers", str(workers)]
    command += ["--epochs", str(arguments.epochs)]
    try:
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        environment["PYTHONWARNINGS"] = "ignore"
        run = group.start(command, env=environment, stdout=subprocess.PIPE, text=True)
        if run.stdout.readline().strip() != "ready":
            sys.exit(f"{' '.join(command)} ended with {run.wait()}")
        highest = (0, 0, 0)
        while run.poll() is None:
            highest = max(highest, group.use(), key=lambda use: use[0] + use[1])
            time.sleep(0.02)
        epochs = [json.loads(line) for line in run.stdout]
        if run.returncode != 0:
            sys.exit(f"{' '.join(command)} ended with {run.returncode}")
        anon, shmem, _file = highest
        return {
            "kind": kind,
            "workers": workers,
            "method": method,
            "anon_bytes": anon,
            "shmem_bytes": shmem,
            "epoch_seconds": min(epoch["seconds"] for epoch in epochs),
            "total": epochs[-1]["total"],
        }
    finally:
        group.remove()


def memory(arguments):
    """Print the table of memory; ratios are to the same texts without workers."""
    print(f"\nMemory of all processes while reading {arguments.megabytes} MB of text:\n")
    print(
        "| texts | start method | workers | anonymous MB | shared MB | both | ratio | net ratio | epoch s |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    rows, floors = [], {}
    for kind in arguments.kinds:
        alone = net_alone = None
        for method, workers in [("fork", 0), *((method, arguments.workers) for method in arguments.methods)]:
            row = measure(arguments, kind, workers, method)
            together = row["anon_bytes"] + row["shmem_bytes"]
            floor = floors.setdefault((method, workers), together) if kind == "none" else None
            net = together - (floor or floors.get((method, workers), 0))
            alone, net_alone = alone or together, net_alone or net
            row["ratio"], row["net_ratio"] = together / alone, net / net_alone if net_alone else None
            rows.append(row)
            shown = f"{row['anon_bytes'] / 1e6:.0f} | {row['shmem_bytes'] / 1e6:.0f} | {together / 1e6:.0f}"
            name = f"{kind} | {method if workers else '-'}"
            net_shown = f"{row['net_ratio']:.2f}" if net_alone and floors else "-"
            figures = f"{row['ratio']:.2f} | {net_shown} | {row['epoch_seconds']:.1f}"
            print(f"| {name} | {workers} | {shown} | {figures} |", flush=True)
    totals = {row["total"] for row in rows if row["kind"] != "none"}
    if len(totals) > 1:
        sys.exit(f"the same texts gave different sums: {totals}")
    return rows


def first_word(text):
    """What a function that looks at the text costs."""
    return text.partition(" ")[0]


LOOPS = {
    "data[i]": lambda data, order: [None for i in order if data[i] is None],
    "len(data[i])": lambda data, order: sum(len(data[i]) for i in order),
    "first_word(data[i])": lambda data, order: [None for i in order if first_word(data[i]) is None],
    "data[i].encode()": lambda data, order: sum(len(data[i].encode()) for i in order),
    "data[i].split()": lambda data, order: sum(len(data[i].split()) for i in order),
    "data[i] + data[i]": lambda data, order: [None for i in order if data[i] + data[i] is None],
}


def timed(loop, data, order):
    """Processor time of one pass: other programs on the machine count less than on the wall clock."""
    start = time.thread_time()
    loop(data, order)
    return (time.thread_time() - start) / len(order) * 1e9


def access(arguments):
    """Print the table of random access: medians of passes in turns."""
    import brimful

    rng = random.Random(2)
    plain_texts = list(texts(arguments.megabytes))
    count = len(plain_texts)
    numbers = [rng.randrange(1 << 40) for _ in range(count)]
    floats = [float(number) for number in numbers]
    order = [rng.randrange(count) for _ in range(200_000)]
    cases = [(f"text: {name}", plain_texts, loop) for name, loop in LOOPS.items()]
    cases += [
        ("int: data[i] + data[i]", numbers, LOOPS["data[i] + data[i]"]),
        ("float: data[i] + data[i]", floats, LOOPS["data[i] + data[i]"]),
    ]
    print(f"\nRandom access to {count} items in one process, ns of processor time:\n")
    print("| access | plain | shared | speed of shared |")
    print("|---|---:|---:|---:|")
    rows, known = [], {}
    for name, plain, loop in cases:
        shared = known.setdefault(id(plain), brimful.share(plain) if id(plain) not in known else None)
        timed(loop, shared, range(count))  # every page is mapped once, as every object is there already
        pairs = [(timed(loop, plain, order), timed(loop, shared, order)) for _ in range(arguments.rounds)]
        slow, fast = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        rows.append({"access": name, "plain_ns": slow, "shared_ns": fast, "ratio": ratio})
        print(f"| {name} | {slow:.0f} | {fast:.0f} | {ratio:.2f} |", flush=True)
    return rows


def main():
    """Measure both, or be one of the measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--only", choices=("memory", "access"))
    parser.add_argument("--json", type=pathlib.Path, help="write the figures there too")
    parser.add_argument("--train", nargs=2, metavar=("KIND", "METHOD"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        train(*arguments.train, arguments)
        return
    found = {}
    if arguments.only != "access":
        found["memory"] = memory(arguments)
    if arguments.only != "memory":
        found["access"] = access(arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
