"""How long the ranks of an attempt need to agree.

    python benches/nodes/agreement.py [--ranks 3 256] [--repeat N]

The store is PyTorch's own, as torchrun opens it. Every rank is a process that agrees as it does below
torchrun, and then becomes `true` in place of a training. Needs `brimful` and a Python with torch. Printed:
the longest time that a rank says it needed, and the time from the first start to the last end, beside that
of as many processes of `brimful --version`. PyTorch's store looks up the name of every client; to measure
without slow lookups, run it in `unshare --mount` with `hosts: files` in /etc/nsswitch.conf.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from datetime import timedelta

import torch.distributed as dist

BRIMFUL = shutil.which("brimful") or "brimful"


def order(folder, shared, rank, ranks):
    """Write what `brimful run` writes for the ranks of a node."""
    directory = folder / str(rank)
    directory.mkdir()
    job = {
        "command": ["torchrun", f"--nnodes={ranks}", "--no-python", "true"],
        "checkpoints": [],
        "resume": [],
        "extra": [],
        "values": {},
        "effective_batch": None,
        "knobs": [],
        "sacrifice": [],
        "config": [],
    }
    proposal = {
        "node": f"{rank:016x}",
        "host_name": socket.gethostname(),
        "brimful_version": "same",
        "run": None,
        "is_member": False,
        "job": "same",
        "rung": 0,
        "settings": {"micro_batch": 8},
        "samples_per_second": None,
    }
    content = {
        "job": job,
        "config": [],
        "working_directory": str(folder),
        "shared": str(shared),
        "key": "bench",
        "excluded": {"rehearsed": None, "ignored": None, "force": False},
        "max_attempts": 8,
        "proposal": proposal,
    }
    path = directory / "order.json"
    path.touch(0o600)
    path.write_text(json.dumps(content))
    return path


def together(commands, environments):
    """Start all at once and wait for all; seconds and what each has printed."""
    began = time.monotonic()
    started = [
        subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        for command, environment in zip(commands, environments, strict=True)
    ]
    said = [process.communicate()[1] for process in started]
    failed = [text for process, text in zip(started, said, strict=True) if process.returncode]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(started)} ranks failed: {failed[0]}")
    return time.monotonic() - began, said


def trial(ranks):
    """One agreement: the longest wait of a rank in ms, the seconds of all, and of as many programs."""
    store = dist.TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=60)
    )
    with tempfile.TemporaryDirectory(prefix="brimful-agreement-") as place:
        folder = pathlib.Path(place)
        shared = folder / ".brimful"
        shared.mkdir(mode=0o700)
        commands = [[BRIMFUL, "__rank", str(order(folder, shared, rank, ranks)), ""] for rank in range(ranks)]
        environments = [
            os.environ
            | {
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_RANK": "0",
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
            }
            for rank in range(ranks)
        ]
        seconds, said = together(commands, environments)
        baseline, _ = together([[BRIMFUL, "--version"]] * ranks, [dict(os.environ)] * ranks)
    needed = [int(re.search(r"agreed in (\d+) ms", text).group(1)) for text in said]
    return max(needed), seconds, baseline


def main():
    """Print the median and the maximum of some agreements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[3, 256])
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print("ranks  longest wait of a rank, ms (median, max)  all, s (median)  as many programs, s (median)")
    for ranks in arguments.ranks:
        found = [trial(ranks) for _ in range(arguments.repeat)]
        waits, seconds, baselines = zip(*found, strict=True)
        print(
            f"{ranks:5}  {statistics.median(waits):.0f}, {max(waits)}"
            f"  {statistics.median(seconds):.2f}  {statistics.median(baselines):.2f}"
        )


if __name__ == "__main__":
    main()
