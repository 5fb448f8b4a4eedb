"""Prepare on a real Ray cluster on loopback while processes of it are killed, and compare the digests.

    python benches/prepare/ray_kills.py

Needs an environment with brimful, ray and tokenizers. Starts a head without CPUs and two nodes with one CPU
each, prepares made-up text undisturbed in threads and on the cluster, then kills a worker process, a raylet
and the driver (and starts the driver again), each in a new directory.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = pathlib.Path(sys.executable).parent / "brimful"
RAY = pathlib.Path(sys.executable).parent / "ray"
PORT = 6397
RECIPE = """
source = { lines = "text.jsonl", json = "text" }
ops = [{ tokenize = "tok.json", end_id = 0 }]
block = 129
seed = 1
shard = "1MiB"
split = "1MiB"
"""


def inputs(folder):
    """Write made-up text, a byte-level tokenizer and a recipe."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=draw.randrange(2, 9))) for _ in range(3000)]
    with (folder / "text.jsonl").open("w") as file:
        for _ in range(12000):
            text = " ".join(draw.choices(words, k=draw.randrange(1, 600)))
            file.write(json.dumps({"text": text}) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(words)] * 2, trainer)
    tokenizer.save(str(folder / "tok.json"))
    (folder / "recipe.toml").write_text(RECIPE)


def environment():
    """Return variables that send the command to our cluster and nothing to anybody else."""
    return {
        **os.environ,
        "RAY_ADDRESS": f"127.0.0.1:{PORT}",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def raylets(folder):
    """Return the process ids of the raylets of this cluster, the head's first."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"/raylet") and any(str(folder).encode() in word for word in words):
                found.append(int(entry.name))
    return sorted(found)


def children(pid):
    """Return the process ids of the workers of a raylet that run a task."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            status = (entry / "status").read_text()
            words = (entry / "cmdline").read_text()
        except (OSError, UnicodeDecodeError):
            continue
        # The agents of a raylet have such names too, and it ends with them.
        if words.startswith("ray::_run_task") and f"PPid:\t{pid}\n" in status:
            found.append(int(entry.name))
    return found


def start_node(folder, *options):
    """Start a raylet, or the head; it ends with the process that is returned."""
    line = [RAY, "start", "--block", "--object-store-memory", "80000000", *options]
    log = (folder / "nodes.log").open("a")
    return subprocess.Popen(line, stdout=log, stderr=log, env=environment(), cwd=folder)


def start(folder, out):
    """Start the command on the cluster."""
    line = [
        PROGRAM,
        "prepare",
        folder / "recipe.toml",
        "--out",
        out,
        "--memory",
        "128MiB",
        "--json",
        "--on",
        "ray",
    ]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, env=environment())


def finished(process):
    """Return the digest of a command that ends well."""
    said, _ = process.communicate(timeout=600)
    if process.returncode:
        raise SystemExit(f"the command ended with {process.returncode}")
    return json.loads(said)["digest"]


def main():
    """Run and report."""
    scratch = tempfile.TemporaryDirectory(prefix="ray-")
    folder = pathlib.Path(scratch.name)
    inputs(folder)
    line = [PROGRAM, "prepare", folder / "recipe.toml", "--out", folder / "threads", "--json"]
    expected = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)["digest"]
    cluster = []
    try:
        head = ["--head", "--num-cpus", "0", "--port", str(PORT), "--temp-dir", str(folder / "ray")]
        cluster.append(start_node(folder, *head, "--disable-usage-stats", "--include-dashboard", "false"))
        time.sleep(10)
        node = ["--num-cpus", "1", "--address", f"127.0.0.1:{PORT}"]
        cluster += [start_node(folder, *node), start_node(folder, *node)]
        time.sleep(10)
        report = {"undisturbed": finished(start(folder, folder / "undisturbed")) == expected}
        for what in ("worker", "raylet", "driver"):
            out = folder / what
            process = start(folder, out)
            runs = out / ".brimful-prepare" / "runs"
            while len(list(runs.glob("*.run"))) < 3:
                time.sleep(0.1)
            nodes = raylets(folder)
            if what == "driver":
                process.send_signal(signal.SIGKILL)
                process.wait()
                process = start(folder, out)
            elif what == "raylet":
                os.kill(nodes[-1], signal.SIGKILL)
            else:
                workers = [worker for node in nodes for worker in children(node)]
                os.kill(random.choice(workers), signal.SIGKILL)
            report[what] = finished(process) == expected
        print(json.dumps({"same digest": report}))
    finally:
        for node in reversed(cluster):
            node.terminate()
            node.wait(60)
        scratch.cleanup()


if __name__ == "__main__":
    main()
