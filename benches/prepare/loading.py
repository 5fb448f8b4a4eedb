"""Loading prepared shards beside loading the same samples from plain files: in order, shuffled, and by rank.

    python benches/prepare/loading.py DATA [--rounds 3]

Needs an environment with brimful and the blocks of `make_data.py`. Prepares the blocks once, then loads both
in turns and prints samples per second and CPU time per sample as a table, with the ratio of the prepared one.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

import brimful
import brimful.data as bd

BLOCK = 2049
BATCH = 64
WAYS = {
    "in order": {},
    "shuffled": {"shuffle": True, "seed": 1},
    "shuffled, rank 1 of 4": {"shuffle": True, "seed": 1, "rank": 1, "world_size": 4},
}


def measure(dataset, settings):
    """Load one epoch; samples per second and microseconds of CPU per sample."""
    loader = bd.Loader(dataset, batch_size=BATCH, memory="64MiB", threads=2, output="numpy", **settings)
    cpu, wall, samples = time.process_time(), time.perf_counter(), 0
    for batch in loader:
        array = next(iter(batch.values()))
        samples += len(array)
        array[:, ::1024].sum()
    return samples / (time.perf_counter() - wall), (time.process_time() - cpu) / samples * 1e6


def main():
    """Prepare, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    files = sorted((options.data / "blocks").glob("*.bin"))
    with tempfile.TemporaryDirectory(prefix="loading-", dir=options.data.resolve().parent) as folder:
        plain = bd.tokens(files, BLOCK, dtype="uint16")
        brimful.prepare(plain, f"{folder}/out", progress=False)
        datasets = {"plain": plain, "prepared": bd.prepared(f"{folder}/out")}
        found = {(way, name): [] for way in WAYS for name in datasets}
        for _ in range(options.rounds + 1):
            for way, settings in WAYS.items():
                for name, dataset in datasets.items():
                    found[way, name].append(measure(dataset, settings))
    print("| order | plain, samples/s | prepared | ratio | plain, CPU us per sample | prepared | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for way in WAYS:
        # The first round reads the files into the page cache.
        rate, cpu = (
            [statistics.median(run[at] for run in found[way, name][1:]) for name in datasets] for at in (0, 1)
        )
        print(
            f"| {way} | {rate[0]:,.0f} | {rate[1]:,.0f} | {rate[1] / rate[0]:.2f}"
            f" | {cpu[0]:.1f} | {cpu[1]:.1f} | {cpu[1] / cpu[0]:.2f} |"
        )


if __name__ == "__main__":
    main()
