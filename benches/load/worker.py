"""One run of one loader, in this process and those that it starts; writes one line of JSON.

    worker.py MODULE:FUNCTION --folder DATA --result FILE --group NAME [--batch-size 128] [--threads 2]
    worker.py MODULE:FUNCTION --folder DATA --result FILE --check TABLE

Begins to count when the libraries are imported. What the function returns is used as a training would: each
batch is looked at in every page, and given up when the next one is there.
"""

import argparse
import importlib
import importlib.metadata
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from groups import Group

PAGE = 4096


def touch(batch):
    """Look at one number in each page; the number of samples."""
    for tensor in batch.values():
        tensor.reshape(-1)[:: PAGE // tensor.element_size()].max()
    return len(next(iter(batch.values())))


def measure(batches, group, asked):
    """One epoch."""
    base = sum(group.use())
    cpu, began = group.cpu_seconds(), time.perf_counter()
    found = {"base_bytes": base, "samples": 0, "batches": 0}
    for batch in batches(asked.folder, asked.batch_size, asked.threads):
        found["samples"] += touch(batch)
        found["batches"] += 1
        if found["batches"] == 1:
            found["first_batch_seconds"] = time.perf_counter() - began
            found["first_batch_cpu_seconds"] = group.cpu_seconds() - cpu
    found["seconds"] = time.perf_counter() - began
    found["cpu_seconds"] = group.cpu_seconds() - cpu
    return found


def versions(module):
    """What this run was made of."""
    names = {"torch", "numpy", *getattr(module, "PACKAGES", ())}
    return {name: importlib.metadata.version(name) for name in sorted(names)}


def main():
    """Import the loader, run it, write down what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer")
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--result", type=pathlib.Path, required=True)
    parser.add_argument("--group", help="the control group that this process is in")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--check", help="compare with the reference of this table and do not measure")
    asked = parser.parse_args()
    name, _, function = asked.peer.partition(":")
    try:
        module = importlib.import_module(f"peers.{name}")
    except ImportError as error:
        asked.result.write_text(json.dumps({"skipped": f"{type(error).__name__}: {error}"}))
        return
    batches = getattr(module, function or "batches")
    if asked.check:
        import checks

        found = checks.TABLES[asked.check](
            asked.folder, batches(asked.folder, asked.batch_size, asked.threads)
        )
    else:
        found = measure(batches, Group.existing(asked.group), asked)
    asked.result.write_text(json.dumps({**found, "versions": versions(module)}))


if __name__ == "__main__":
    main()
