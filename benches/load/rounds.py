"""Loaders side by side: each run in a fresh process and a control group of its own, rounds in turns.

Used by the tables beside this file. What is counted of a run: processor time of the whole tree, from the
moment the libraries are imported to the end of the epoch; samples per second and seconds to the first batch
in the same span; the highest sum of anonymous and shared memory of the whole tree, read every 20 ms.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from groups import Group  # noqa: E402

BETWEEN = 0.02  # seconds from one look at the memory to the next
UNITS = {"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


@dataclasses.dataclass(frozen=True)
class Peer:
    """One line of a table."""

    name: str  # for --only
    label: str
    call: str  # MODULE:FUNCTION of peers/
    form: str  # the part of the data that it reads
    part: int = 1  # it is given one sample in so many
    ours: bool = False


def bytes_of(text):
    """768MB, 1.2GB, 512MiB."""
    found = re.fullmatch(r"([\d.]+)\s*([A-Za-z]*)", text)
    if not found or found[2].upper() not in UNITS:
        raise argparse.ArgumentTypeError(f"expected a size like 768MB, found {text!r}")
    return int(float(found[1]) * UNITS[found[2].upper()])


def files_of(folder, peer):
    path = folder / peer.form
    return [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())


def warm(files):
    """Read all into the page cache, which is then not of the run's group."""
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while opened.read(1 << 22):
                pass


def drop(files):
    """Let the page cache go of these files."""
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Bench:
    """What is asked for all runs of a table."""

    def __init__(self, table, asked):
        self.table, self.asked = table, asked
        self.expected = json.loads((asked.data / "samples.json").read_text())[table]
        self.environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONWARNINGS": "ignore",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LITDATA_DISABLE_VERSION_CHECK": "1",
            "HF_HUB_OFFLINE": "1",
        }

    def command(self, peer, result, *more):
        python = self.asked.ours_python if peer.ours and self.asked.ours_python else self.asked.python
        command = [python, str(HERE / "worker.py"), peer.call, "--folder", str(self.asked.data)]
        command += ["--batch-size", str(self.asked.batch_size), "--threads", str(self.asked.threads)]
        return [*command, "--result", str(result), *more]

    def prepare_cache(self, peer, limit):
        files = files_of(self.asked.data, peer)
        if not files:
            return False
        if self.asked.cold:
            os.sync()
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
        elif limit:
            drop(files)
        else:
            warm(files)
        return True

    def run(self, peer, number):
        """One run; what the worker wrote, and what was seen from outside."""
        limit = self.asked.limit if peer.ours else self.asked.peer_limit
        found = {"table": self.table, "peer": peer.name, "round": number, "limit": limit}
        if not self.prepare_cache(peer, limit):
            return {**found, "skipped": f"no {peer.form} in the data"}
        name = f"brimful-load-{os.getpid()}-{number}-{peer.name}"
        group = Group(name, limit)
        with tempfile.TemporaryDirectory() as folder, (pathlib.Path(folder) / "said").open("w+b") as said:
            result = pathlib.Path(folder) / "result.json"
            started = None
            try:
                command = self.command(peer, result, "--group", name)
                named = {"env": self.environment, "stdout": said, "stderr": said, "stdin": subprocess.DEVNULL}
                started = group.start(command, **named)
                found |= watch(group, started, self.asked.longest)
            finally:
                group.end()
                if started:
                    started.wait()
                group.remove()
            if result.exists():
                found |= json.loads(result.read_text())
            elif not found["kills"]:
                said.seek(0)
                found["said"] = said.read().decode(errors="replace")[-1500:]
        return self.judged(peer, found)

    def judged(self, peer, found):
        """Add whether the run counts."""
        if "skipped" in found:
            return found
        expected = -(-self.expected // peer.part)
        if found.get("samples", expected) != expected:
            found["said"] = f"expected {expected} samples, found {found['samples']}"
        found["ended"] = "samples" in found and not found["kills"] and "said" not in found
        return found

    def check(self, peer):
        """Compare one loader's samples with the reference."""
        with tempfile.TemporaryDirectory() as folder:
            result = pathlib.Path(folder) / "result.json"
            command = self.command(peer, result, "--check", self.table)
            ended = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, errors="replace", check=False
            )
            if not result.exists():
                return {"same": False, "said": ended.stderr[-1500:]}
            return json.loads(result.read_text())


def watch(group, started, longest):
    """Look on until the command has ended, or for so many seconds."""
    highest, began = 0, time.monotonic()
    while started.poll() is None:
        highest = max(highest, sum(group.use()))
        # A loader whose worker was killed may wait for it forever.
        if group.kills() or time.monotonic() - began > longest:
            group.end()
            started.wait()
        time.sleep(BETWEEN)
    found = {"peak_bytes": highest, "kills": group.kills(), "code": started.returncode}
    if time.monotonic() - began > longest:
        found["said"] = f"ended after {longest:.0f} s"
    return found


def line(peer, runs):
    """A loader's medians as a line of the table."""
    good = [run for run in runs if run.get("ended")]
    killed = sum(run.get("kills", 0) > 0 for run in runs)
    label = f"**{peer.label}**" if peer.ours else peer.label
    if peer.part > 1:
        label += f" (1/{peer.part} of the data)"
    if not good:
        why = "killed" if killed else "failed"
        return f"| {label} | {why} | | | | | {killed} of {len(runs)} |"
    middle = lambda of: statistics.median(of(run) for run in good)  # noqa: E731
    cpu = middle(lambda run: run["cpu_seconds"] / run["samples"] * 1e3)
    rate = middle(lambda run: run["samples"] / run["seconds"])
    first = middle(lambda run: run["first_batch_seconds"])
    peak, base = (middle(lambda run, key=key: run[key]) / 1e6 for key in ("peak_bytes", "base_bytes"))
    figures = f"{cpu:.3g} | {rate:,.0f} | {first:.2f} | {peak:.0f} | {base:.0f}"
    return f"| {label} | {figures} | {killed} of {len(runs)} |"


def show(peers, results):
    """Print the table and the versions that it is about."""
    head = [
        "loader",
        "CPU ms per sample",
        "samples/s",
        "first batch s",
        "peak MB",
        "of it imports MB",
        "killed",
    ]
    print("\n| " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) - 1))
    versions = {}
    for peer in peers:
        runs = results[peer.name]
        versions |= next((run["versions"] for run in runs if "versions" in run), {})
        if not any("skipped" in run for run in runs):
            print(line(peer, runs))
    print()
    for peer in peers:
        trouble = {run.get("skipped") or run.get("said") for run in results[peer.name]} - {None}
        for words in sorted(trouble):
            how = "skipped" if any("skipped" in run for run in results[peer.name]) else "failed"
            print(f"{peer.label} {how}: {words}")
    print("Versions:", ", ".join(f"{name} {version}" for name, version in sorted(versions.items())))


def arguments(table, peers, about):
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path, help="the folder that make_data.py has filled")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=[peer.name for peer in peers])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2, help="threads or processes of each loader")
    parser.add_argument(
        "--limit", type=bytes_of, help="a limit for ours, like 768MB; the data is dropped first"
    )
    parser.add_argument("--peer-limit", type=bytes_of, help="the same for the others")
    parser.add_argument(
        "--cold", action="store_true", help="drop the machine's whole page cache before each run"
    )
    parser.add_argument("--longest", type=float, default=900, help="seconds of one run")
    parser.add_argument("--python", default=sys.executable, help="of the others")
    parser.add_argument("--ours-python", help="of ours, if it is another one")
    parser.add_argument(
        "--output", type=pathlib.Path, default=f"load-{table}.jsonl", help="each run as a line"
    )
    parser.add_argument("--check", action="store_true", help="compare what they give, and do not measure")
    return parser.parse_args()


def main(table, peers, about):
    """Run the table and print it."""
    asked = arguments(table, peers, about)
    # Asked to end, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bench = Bench(table, asked)
    peers = [peer for peer in peers if not asked.only or peer.name in asked.only]
    if asked.check:
        found = {peer.name: bench.check(peer) for peer in peers}
        for name, result in found.items():
            print(name, json.dumps(result), flush=True)
        return 0 if all(result.get("same") or "skipped" in result for result in found.values()) else 1
    results = {peer.name: [] for peer in peers}
    for number in range(asked.rounds):
        for peer in peers:
            if any("skipped" in run for run in results[peer.name]):
                continue
            found = bench.run(peer, number)
            results[peer.name].append(found)
            with asked.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(f"round {number} {peer.name}: {word(found)}", file=sys.stderr, flush=True)
    show(peers, results)
    return 0


def word(found):
    """One run in a few words."""
    if "skipped" in found:
        return f"skipped, {found['skipped']}"
    if not found["ended"]:
        return f"killed {found['kills']}, code {found['code']}, {found.get('said', '')[-300:]}"
    return f"{found['cpu_seconds'] / found['samples'] * 1e3:.3f} ms, {found['peak_bytes'] / 1e6:.0f} MB"
