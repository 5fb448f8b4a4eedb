"""Text to shuffled blocks on one Ray cluster: `brimful prepare --on ray` beside Ray Data, in turns.

    python benches/prepare/make_data.py DATA --text-megabytes 90 --images 0 --blocks 0
    python benches/prepare/ray_data.py DATA [--rounds 3]

Needs root (control groups) and an environment with brimful, ray[data], pyarrow and tokenizers. Each
measurement starts a new cluster with two CPUs in a control group of its own, with the driver: CPU time and
the peak of anonymous and shared memory are those of all its processes. Prints the medians and their ratios;
the goal is at most 0.4 of both, and the exit code is 1 above it.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from groups import Group

BINARIES = pathlib.Path(sys.executable).parent
PORT = 6398
BLOCK, END, SEED = 2049, 0, 1
START_TIMEOUT, RUN_TIMEOUT = 90, 600  # seconds
TOOLS = ("Ray Data", "brimful")
GOAL = 0.4


def environment():
    """Return variables that send a driver to this cluster and disable Ray's usage statistics."""
    variables = {"RAY_ADDRESS": f"127.0.0.1:{PORT}", "RAY_AUTH_MODE": "disabled"}
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}
    # Ray starts a process for each CPU.
    return {**os.environ, **variables, **quiet, "TOKENIZERS_PARALLELISM": "false"}


@functools.cache
def tokenizer_of(path):
    """Load a tokenizer once in each process."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(path)


def blocks(batch, path):
    """Return the blocks of a batch of documents; tokens at its end that fill no block are dropped."""
    import numpy as np
    import pyarrow as pa

    encoded = tokenizer_of(path).encode_batch_fast(batch["text"].to_pylist(), add_special_tokens=False)
    tokens = np.concatenate([np.asarray([*one.ids, END], dtype=np.uint16) for one in encoded])
    tokens = pa.array(tokens[: len(tokens) // BLOCK * BLOCK])
    return pa.table({"tokens": pa.FixedSizeListArray.from_arrays(tokens, BLOCK)})


def with_ray_data(data, out):
    """Make the dataset with Ray Data, as its driver."""
    import ray

    # Imported by name, the workers load the tokenizer once, and not once for each task.
    import ray_data

    ray.init(log_to_driver=False)
    texts = ray.data.read_json(sorted(str(path) for path in (data / "text").glob("*.jsonl")))
    made = texts.map_batches(
        ray_data.blocks,
        fn_kwargs={"path": str(data / "tok.json")},
        batch_size=1024,
        batch_format="pyarrow",
        zero_copy_batch=True,
    )
    made.random_shuffle(seed=SEED).write_parquet(str(out), compression="none")


def command_of(tool, data, folder):
    """Return the command line of a driver."""
    if tool == "Ray Data":
        return [sys.executable, __file__, str(data), "--make", str(folder / "out")]
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'source = {{ lines = "{data}/text/*.jsonl", json = "text" }}\n'
        f'ops = [{{ tokenize = "{data}/tok.json", end_id = {END} }}]\n'
        f'block = {BLOCK}\nseed = {SEED}\nshard = "16MiB"\n'
    )
    line = [BINARIES / "brimful", "prepare", recipe, "--out", folder / "out", "--memory", "128MiB"]
    return [*map(str, line), "--on", "ray", "--json"]


def blocks_in(tool, out):
    """Return how many blocks a dataset has."""
    if tool == "brimful":
        return json.loads((out / "manifest.json").read_text())["samples"]
    from pyarrow import parquet

    return sum(parquet.read_metadata(path).num_rows for path in out.glob("*.parquet"))


def measure(tool, data, number):
    """Start a cluster, run a driver, and return what both used."""
    scratch = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
    folder = pathlib.Path(scratch.name)
    group = Group(f"prepare-ray-{os.getpid()}-{number}")
    ended, peak = threading.Event(), 0

    def watch():
        nonlocal peak
        while not ended.wait(0.03):
            peak = max(peak, sum(group.use()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    head = None
    try:
        line = [str(BINARIES / "ray"), "start", "--head", "--block", "--port", str(PORT), "--num-cpus", "2"]
        line += ["--include-dashboard", "false", "--temp-dir", str(folder / "ray")]
        log = folder / "cluster.log"
        with log.open("w") as file:
            named = {"stdout": file, "stderr": file, "env": environment(), "start_new_session": True}
            head = group.start(line, **named)
        end = time.monotonic() + START_TIMEOUT
        while "Ray runtime started" not in log.read_text():
            if head.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"Ray did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.1)
        idle = {"cpu_seconds": round(group.cpu_seconds(), 1), "megabytes": round(sum(group.use()) / 1e6)}
        began = time.monotonic()
        code, _, errors = group.run(command_of(tool, data, folder), timeout=RUN_TIMEOUT, env=environment())
        wall = time.monotonic() - began
        if code:
            raise SystemExit(f"{tool} ended with {code}:\n{errors[-3000:]}")
        return {
            "tool": tool,
            "cpu_seconds": round(group.cpu_seconds(), 1),
            "peak_megabytes": round(peak / 1e6),
            "of which the cluster before the driver": idle,
            "wall_seconds": round(wall, 1),
            "blocks": blocks_in(tool, folder / "out"),
        }
    finally:
        ended.set()
        watcher.join()
        group.end()
        if head is not None:
            head.wait()
        group.remove()
        scratch.cleanup()


def main():
    """Measure in turns and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path, help="the directory that make_data.py filled")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--make", type=pathlib.Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    data = asked.data.resolve()
    if asked.make:
        with_ray_data(data, asked.make)
        return 0
    found = {tool: [] for tool in TOOLS}
    for number in range(asked.rounds):
        for tool in TOOLS if number % 2 == 0 else TOOLS[::-1]:
            one = measure(tool, data, f"{number}-{TOOLS.index(tool)}")
            print(json.dumps(one), file=sys.stderr, flush=True)
            found[tool].append(one)
    names = ("cpu_seconds", "peak_megabytes", "blocks")
    medians = {}
    for tool in TOOLS:
        medians[tool] = {name: statistics.median(one[name] for one in found[tool]) for name in names}
    peer, own = (medians[tool] for tool in TOOLS)
    ratios = {name: round(own[name] / peer[name], 3) for name in names}
    print(json.dumps({"medians": medians, "ratio": ratios}))
    return 0 if max(ratios["cpu_seconds"], ratios["peak_megabytes"]) <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
