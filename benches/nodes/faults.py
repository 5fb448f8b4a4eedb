"""Faults on three nodes, and whether all ranks come back with the same settings from the same checkpoint.

    python benches/nodes/faults.py [--fault NAME] [--repeat N] [--json FILE]

A node is a network namespace with an address of its own and a memory control group with a limit. On each,
`brimful run` starts `torchrun` in a directory that all nodes share. Everything ends for real: by the kernel's
OOM killer, by SIGKILL, by taking a link down. Needs root, `ip`, `brimful`, and a Python with torch.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from groups import Group  # noqa: E402

IP = shutil.which("ip") or "/usr/sbin/ip"
LIMIT = 1_500 << 20
TIMEOUT = 180
STEPS = 24
JOB = """\
[job]
command = [
    "torchrun", "--nnodes=3", "--nproc-per-node=1", "--rdzv-id=job", "--rdzv-backend=c10d",
    "--rdzv-endpoint=10.99.0.1:29513", "--local-addr={address}",
    "--rdzv-conf=join_timeout=120,is_host={is_host}",
    "TRAIN", "--out", "OUT", "--faults", "OUT/faults.json",
    "--micro-batch", "{micro_batch}", "--accumulation", "{accumulation}",
]
checkpoints = "OUT/step-*.pt"
resume = ["--resume", "{checkpoint}"]

[keep]
effective_batch = 24

[knobs]
micro_batch = [8, 4, 2, 1]
"""


class Network:
    """A bridge and a namespace for each node."""

    def __init__(self, count):
        self.names = [f"bfnode{idx}" for idx in range(count)]
        self.addresses = [f"10.99.0.{idx + 1}" for idx in range(count)]
        self._ip("link", "add", "bfbridge", "type", "bridge")
        self._ip("link", "set", "bfbridge", "up")
        for idx, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            self._ip("netns", "add", name)
            self._ip("link", "add", f"bfv{idx}", "type", "veth", "peer", "name", "eth0", "netns", name)
            self._ip("link", "set", f"bfv{idx}", "master", "bfbridge", "up")
            self._ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            self._ip("-n", name, "link", "set", "eth0", "up")
            self._ip("-n", name, "link", "set", "lo", "up")

    def _ip(self, *words):
        subprocess.run([IP, *words], check=True)

    def link(self, idx, state):
        """Take the link of a node up or down."""
        self._ip("link", "set", f"bfv{idx}", state)

    def remove(self):
        """Remove everything."""
        for idx, name in enumerate(self.names):
            subprocess.run([IP, "link", "delete", f"bfv{idx}"], check=False)
            subprocess.run([IP, "netns", "delete", name], check=False)
        subprocess.run([IP, "link", "delete", "bfbridge"], check=False)


class Node:
    """One node: a namespace, a control group, and `brimful run` in it."""

    def __init__(self, idx, network, place):
        self.idx, self.network, self.place = idx, network, place
        self.group = None
        self.n_starts = 0

    def start(self):
        """Start `brimful run` on this node."""
        self.n_starts += 1
        self.group = Group(f"brimful-node{self.idx}-{os.getpid()}-{self.n_starts}-{time.time_ns()}", LIMIT)
        environment = os.environ | {
            "NODE": str(self.idx),
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        log = self.place / f"node{self.idx}-{self.n_starts}.log"
        command = ["nsenter", f"--net=/run/netns/{self.network.names[self.idx]}", "brimful", "run"]
        command += ["--as-wanted", "--no-status", "--job", f"job{self.idx}.toml"]
        command += ["--state-dir", str(self.place / f"state{self.idx}")]
        with log.open("w") as out:
            self.process = self.group.start(
                command, cwd=self.place, env=environment, stdout=out, stderr=subprocess.STDOUT
            )

    def processes(self):
        """Every process of the node with its command line."""
        for folder in self.group.memory.rglob("cgroup.procs"):
            with contextlib.suppress(OSError):
                for pid in folder.read_text().split():
                    with contextlib.suppress(OSError):
                        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                        yield int(pid), [word.decode(errors="replace") for word in words]

    def kill(self, match=None):
        """Kill the processes of this node whose command line matches; their number."""
        n_killed = 0
        for pid, words in list(self.processes()):
            if match is None or match(words):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    n_killed += 1
        return n_killed

    def kill_whole(self):
        """Kill everything, as a machine that loses power."""
        while self.kill():
            time.sleep(0.01)
        self.process.wait()


class Trial:
    """Three nodes that train once."""

    def __init__(self, network, place):
        self.network, self.place = network, place
        self.out = place / "out"
        self.out.mkdir()
        for idx, address in enumerate(network.addresses):
            text = JOB.replace("TRAIN", str(HERE / "train.py")).replace("OUT", str(self.out))
            text = text.replace("{address}", address).replace("{is_host}", str(idx == 0).lower())
            (place / f"job{idx}.toml").write_text(text)
        self.nodes = [Node(idx, network, place) for idx in range(len(network.names))]

    def lines(self):
        """Every line that any rank has written."""
        found = []
        for file in sorted(self.out.glob("log-*.jsonl")):
            for line in file.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def wait_for_step(self, step):
        """Wait until a rank has written a step."""
        until = time.time() + TIMEOUT
        while time.time() < until:
            if any(line["step"] >= step and "loss" in line for line in self.lines()):
                return True
            time.sleep(0.05)
        return False

    def wait(self):
        """Wait for all nodes; the exit codes, or None where one has not ended."""
        until = time.time() + TIMEOUT
        for node in self.nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.process.wait(max(0.1, until - time.time()))
        codes = [node.process.poll() for node in self.nodes]
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill_whole()
        return codes


def judge(trial, codes, expected):
    """Return what is wrong; nothing if all is well."""
    wrong = []
    lines = trial.lines()
    worlds = {}
    for line in lines:
        worlds.setdefault(line["world"], []).append(line)
    for world, of_world in worlds.items():
        wrong += [
            f"several values of {what} in world {world}"
            for what in ("micro_batch", "from")
            if len({line[what] for line in of_world}) > 1
        ]
    if None in codes:
        wrong.append(f"did not end: {codes}")
    losses = {}
    for line in lines:
        if "loss" in line:
            losses.setdefault(line["step"], []).append(line["loss"])
    if all(code == 0 for code in codes):
        if sorted(losses) != list(range(1, STEPS + 1)):
            wrong.append(f"steps are missing: {sorted(losses)}")
        for step, found in losses.items():
            if any(abs(loss - expected[step]) > 1e-9 * abs(expected[step]) for loss in found):
                wrong.append(f"step {step}: losses {found}, undisturbed {expected[step]}")
    elif None not in codes:
        verdicts = {ending(node) for node in trial.nodes}
        if len(verdicts) > 1:
            wrong.append(f"several endings: {sorted(verdicts)}")
    return wrong


def ending(node):
    """Why a node says that the run is not restarted."""
    text = (node.place / f"node{node.idx}-{node.n_starts}.log").read_text(errors="replace")
    lines = [line for line in text.splitlines() if "not restarting" in line]
    return lines[-1] if lines else "no reason"


def memory(ranks):
    """Make ranks run out of memory."""

    def make(trial):
        (trial.out / "faults.json").write_text(json.dumps([{"ranks": ranks, "step": 10, "above": 4}]))
        return lambda: None

    return make


def is_rank(words):
    """Whether a command line is that of a rank that has not agreed yet."""
    return "__rank" in words or any(word.endswith("start.py") for word in words[:3])


def undisturbed(_trial):
    """Do nothing."""
    return lambda: None


def wrapper_killed(trial):
    """Kill a rank that has not agreed yet."""

    def act():
        until = time.time() + TIMEOUT
        while time.time() < until:
            if trial.nodes[2].kill(is_rank):
                return
            time.sleep(0.002)

    return act


def host_killed(trial):
    """Kill torchrun on the node that holds the store."""

    def act():
        trial.wait_for_step(10)
        trial.nodes[0].kill(lambda words: any(word.endswith("torchrun") for word in words[:3]))

    return act


def partition(trial):
    """Take a node off the network for some seconds."""

    def act():
        trial.wait_for_step(10)
        trial.network.link(2, "down")
        time.sleep(90)
        trial.network.link(2, "up")

    return act


def node_killed(trial):
    """Kill everything on a node, and start it again as a scheduler does."""

    def act():
        trial.wait_for_step(10)
        trial.nodes[1].kill_whole()
        time.sleep(1)
        trial.nodes[1].start()

    return act


FAULTS = {
    "none": (undisturbed, 1),
    "memory of one rank": (memory([1]), 20),
    "memory of two ranks": (memory([1, 2]), 5),
    "wrapper killed": (wrapper_killed, 5),
    "store's host killed": (host_killed, 5),
    "partition": (partition, 5),
    "node killed": (node_killed, 20),
}


def run(network, make, place):
    """Run one trial; the exit codes and the trial."""
    trial = Trial(network, place)
    act = make(trial)
    for node in trial.nodes:
        node.start()
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    return trial.wait(), trial


def main():
    """Repeat every fault, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", choices=FAULTS, action="append")
    parser.add_argument("--repeat", type=int, help="in place of the number of each fault")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path, help="keep the files of all trials here")
    arguments = parser.parse_args()
    network = Network(3)
    results, n_wrong = [], 0
    try:
        with tempfile.TemporaryDirectory(prefix="brimful-nodes-bench-") as folder:
            codes, trial = run(network, FAULTS["none"][0], pathlib.Path(folder))
            expected = {line["step"]: line["loss"] for line in trial.lines() if "loss" in line}
            if codes != [0, 0, 0] or judge(trial, codes, expected):
                print((pathlib.Path(folder) / "node0-1.log").read_text()[-3000:])
                sys.exit(f"the undisturbed run did not finish: {codes} {judge(trial, codes, expected)}")
        for name in arguments.fault or list(FAULTS):
            make, count = FAULTS[name]
            for idx in range(arguments.repeat or count):
                with tempfile.TemporaryDirectory(prefix="brimful-nodes-bench-") as folder:
                    began = time.time()
                    codes, trial = run(network, make, pathlib.Path(folder))
                    wrong = judge(trial, codes, expected)
                    worlds = {line["world"]: line["micro_batch"] for line in trial.lines()}
                    result = {
                        "fault": name,
                        "codes": codes,
                        "starts": list(worlds.values()),
                        "wrong": wrong,
                        "seconds": round(time.time() - began, 1),
                        "ending": sorted({ending(node) for node in trial.nodes}) if any(codes) else [],
                    }
                    results.append(result)
                    n_wrong += bool(wrong)
                    print(json.dumps(result), flush=True)
                    if arguments.keep:
                        kept = arguments.keep / f"{name.replace(' ', '-')}-{idx}"
                        shutil.copytree(folder, kept, dirs_exist_ok=True)
    finally:
        network.remove()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    print(f"{len(results)} trials, {n_wrong} wrong")
    sys.exit(bool(n_wrong))


if __name__ == "__main__":
    main()
