"""Prepare on a real Ray cluster on this machine while processes of it are killed, and compare the digests.

    python benches/prepare/ray_kills.py

Needs Linux and an environment with brimful, ray and tokenizers. Starts a head without CPUs and two nodes with
one CPU each, prepares generated text in threads and on the cluster, then kills a worker process, the raylet
of a node and the driver (and starts the driver again), each in a new directory. A node whose raylet was
killed stays dead while the command runs; the other node must finish the work.
"""

import contextlib
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
ADDRESS, PORT = "127.0.0.1", 6397
# In seconds. Ray takes up to half a minute to notice that a node died.
NODE_TIMEOUT, COMMAND_TIMEOUT = 90, 240
RECIPE = """
source = { lines = "text.jsonl", json = "text" }
ops = [{ tokenize = "tok.json", end_id = 0 }]
block = 129
seed = 1
shard = "1MiB"
split = "1MiB"
"""


def inputs(folder):
    """Write generated text, a byte-level tokenizer and a recipe."""
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
    """Return variables that send the command to this cluster and disable Ray's usage statistics."""
    return {
        **os.environ,
        "RAY_ADDRESS": f"{ADDRESS}:{PORT}",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def processes():
    """Return the id, the parent's id, the session's id and the command line of every process."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            # A process can end while it is read.
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                _, parent, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                found.append((int(entry.name), int(parent), int(session), words))
    return found


def raylet(node):
    """Return the process id of the raylet of a node, if it runs."""
    found = [pid for pid, parent, _, words in processes() if parent == node.pid and "/raylet\0" in words]
    return found[0] if found else None


def busy_workers(pid):
    """Return the process ids of the workers of a raylet that run a task of the preparation."""
    # The raylet's agents are child processes too, and the raylet ends with them.
    task = "ray::_run_task"
    return [one for one, parent, _, words in processes() if parent == pid and words.startswith(task)]


class Cluster:
    """A head and nodes, each with its own raylet, on this machine."""

    def __init__(self, folder):
        self.folder = folder
        self.log = (folder / "nodes.log").open("a")
        self.started = []
        head = ["--head", "--num-cpus", "0", "--port", str(PORT), "--temp-dir", str(folder / "ray")]
        self.start(*head, "--disable-usage-stats", "--include-dashboard", "false")
        self.nodes = [self.add_node(), self.add_node()]

    def start(self, *options):
        """Run `ray start`, which stays in the foreground, and wait until it has started everything."""
        line = [RAY, "start", "--block", "--object-store-memory", "80000000"]
        before = self.ready()
        # A session of its own, so that everything it starts can be killed at the end.
        node = subprocess.Popen(
            [*line, *options],
            stdout=self.log,
            stderr=self.log,
            env=environment(),
            cwd=self.folder,
            start_new_session=True,
        )
        self.started.append(node)
        until(lambda: node.poll() is not None or self.ready() > before, NODE_TIMEOUT, "start of a Ray node")
        if node.poll() is not None:
            raise SystemExit(f"`ray start` ended with {node.returncode}:\n{self.log_text()[-3000:]}")
        return node

    def add_node(self):
        """Start a node with one CPU. If two start at once, both choose the same socket, and one fails."""
        return self.start("--num-cpus", "1", "--address", f"{ADDRESS}:{PORT}")

    def log_text(self):
        """Return what all nodes have printed."""
        return (self.folder / "nodes.log").read_text(errors="replace")

    def ready(self):
        """Return how many nodes have reported that they run."""
        return self.log_text().count("Ray runtime started")

    def stop(self):
        """Stop everything, including what a killed raylet left behind."""
        for node in reversed(self.started):
            node.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(15)
        sessions = {node.pid for node in self.started}
        for pid, _, session, _ in processes():
            if session in sessions:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.log.close()


def until(condition, seconds, what):
    """Wait for a condition and return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not after {seconds} seconds")
        time.sleep(0.05)
    return value


class Command:
    """`brimful prepare` on the cluster."""

    def __init__(self, folder, out):
        self.out = out
        line = [PROGRAM, "prepare", folder / "recipe.toml", "--out", out, "--memory", "128MiB", "--json"]
        line += ["--on", "ray"]
        named = {"stdout": subprocess.PIPE, "text": True, "env": environment(), "start_new_session": True}
        self.process = subprocess.Popen(line, **named)

    def finished_map_tasks(self):
        """Return how many runs are complete."""
        if self.process.poll() is not None:
            raise SystemExit(f"the command ended with {self.process.returncode} before anything was killed")
        return len(list((self.out / ".brimful-prepare" / "runs").glob("*.run")))

    def digest(self):
        """Wait for the end and return the digest."""
        output, _ = self.process.communicate(timeout=COMMAND_TIMEOUT)
        if self.process.returncode:
            raise SystemExit(f"the command ended with {self.process.returncode}")
        return json.loads(output)["digest"]

    def kill(self):
        """Kill the command and everything that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def disturb(what, cluster, command, folder):
    """Kill something while map tasks run; return the command to wait for."""
    until(lambda: command.finished_map_tasks() >= 3, COMMAND_TIMEOUT, "three map tasks")
    if what == "driver":
        command.kill()
        return Command(folder, command.out)
    # Kill only what runs a task: a node without one would not be missed.
    victims = until(
        lambda: [(node, busy_workers(raylet(node))) for node in cluster.nodes if busy_workers(raylet(node))],
        COMMAND_TIMEOUT,
        "a worker that runs a task",
    )
    node, workers = victims[-1]
    if what == "worker":
        os.kill(workers[0], signal.SIGKILL)
    else:
        os.kill(raylet(node), signal.SIGKILL)
        # `ray start` ends when its raylet does, and the node's workers end by themselves.
        node.wait(NODE_TIMEOUT)
        cluster.nodes.remove(node)
    return command


def main():
    """Run and report."""
    scratch = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
    folder = pathlib.Path(scratch.name)
    inputs(folder)
    line = [PROGRAM, "prepare", folder / "recipe.toml", "--out", folder / "threads", "--json"]
    expected = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)["digest"]
    commands, cluster = [], None
    report, seconds = {}, {}
    try:
        cluster = Cluster(folder)
        for what in ("undisturbed", "worker", "raylet", "driver"):
            began = time.monotonic()
            while len(cluster.nodes) < 2:
                cluster.nodes.append(cluster.add_node())
            command = Command(folder, folder / what)
            commands.append(command)
            if what != "undisturbed":
                command = disturb(what, cluster, command, folder)
                commands.append(command)
            report[what] = command.digest() == expected
            seconds[what] = round(time.monotonic() - began)
            print(f"{what}: {'same' if report[what] else 'ANOTHER'} digest", file=sys.stderr, flush=True)
        print(json.dumps({"same digest": report, "seconds": seconds}))
    finally:
        for command in commands:
            command.kill()
        if cluster is not None:
            cluster.stop()
        scratch.cleanup()
    return 0 if all(report.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
