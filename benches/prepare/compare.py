"""Tools that prepare data side by side: each run in a fresh process and a control group of its own.

    python benches/prepare/compare.py text|images|shuffle DATA --brimful PYTHON [--rounds 3]
        [--only NAME,...] [--memory 256MiB] [--output runs.jsonl]

DATA was made by `make_data.py`, PYTHON is that of an environment with brimful. Runs are interleaved: one
round of all tools, then the next. Needs Linux and the right to make control groups.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
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
BLOCK = 2049
# Tools that cut each batch into blocks drop what is left of it.
MAX_LOST = 0.01
# Taken from the report of a tool. The `peak_bytes` of brimful is not: it is measured as for the others.
REPORTED = ("samples", "tokens", "dropped_tokens", "digest")

RECIPES = {
    "text": """
source = {{ lines = "{data}/text/*.jsonl", json = "text" }}
ops = [{{ tokenize = "{data}/tok.json", end_id = 0 }}]
block = 2049
seed = 1
""",
    "images": """
source = {{ folder = "{data}/images", extensions = ["jpg"], labels = true }}
ops = [
    {{ decode = true, field = "image", max_pixels = 1048576 }},
    {{ resize = 224, field = "image" }},
]
seed = 1
""",
    "shuffle": """
source = {{ tokens = "{data}/blocks/*.bin", length = 2049, dtype = "uint16" }}
seed = 1
""",
}


@dataclasses.dataclass(frozen=True)
class Tool:
    """One line of a table."""

    name: str  # for --only
    label: str
    package: str
    order: str  # of the samples in the result


GLOBAL, LISTED, NONE = "global", "global, by a shuffled list of files", "not shuffled globally"
BRIMFUL = Tool("brimful", "brimful prepare", "brimful", GLOBAL)
TABLES = {
    "text": [
        BRIMFUL,
        Tool("datasets", "Hugging Face datasets", "datasets", GLOBAL),
        Tool("ray", "Ray Data", "ray", GLOBAL),
        Tool("datatrove", "DataTrove", "datatrove", GLOBAL),
        Tool("streaming", "mosaicml-streaming", "mosaicml-streaming", NONE),
        Tool("litdata", "litdata", "litdata", NONE),
    ],
    "images": [
        BRIMFUL,
        Tool("datasets", "Hugging Face datasets", "datasets", LISTED),
        Tool("ray", "Ray Data", "ray", LISTED),
        Tool("streaming", "mosaicml-streaming", "mosaicml-streaming", LISTED),
        Tool("litdata", "litdata", "litdata", LISTED),
    ],
    "shuffle": [BRIMFUL, Tool("daft", "Daft, sort", "daft", GLOBAL)],
}
FOLDERS = {"text": "text", "images": "images", "shuffle": "blocks"}
BESIDE = {"text": ["tokenizers"], "images": ["pillow"], "shuffle": []}


def versions(python, packages):
    """Versions of the packages that are installed beside a Python."""
    code = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
    ended = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


def size_of(folder):
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def warm(folder):
    """Read all files into the page cache, and let earlier writes reach the disk."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as opened:
                while opened.read(1 << 22):
                    pass
    os.sync()


def watch(group, started, longest):
    """Look at the memory until the command has ended, at most until the timeout."""
    highest, began = 0, time.monotonic()
    found = {}
    while started.poll() is None:
        highest = max(highest, sum(group.use()))
        if time.monotonic() - began > longest:
            found["said"] = f"ended after {longest:.0f} s"
            group.end()
            started.wait()
        time.sleep(BETWEEN)
    seconds = time.monotonic() - began
    return found | {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(group.cpu_seconds(), 2),
        "peak_bytes": highest,
        "code": started.returncode,
    }


class Bench:
    """What is asked for all runs of a table."""

    def __init__(self, asked):
        self.asked = asked
        self.data = asked.data.resolve()
        self.expected = json.loads((self.data / "expected.json").read_text())
        self.environment = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONWARNINGS": "ignore",
            "HF_HUB_OFFLINE": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "DAFT_ANALYTICS_ENABLED": "0",
            "LITDATA_DISABLE_VERSION_CHECK": "1",
            "DO_NOT_TRACK": "1",
        }

    def command(self, tool, out):
        if tool is not BRIMFUL:
            script = HERE / f"peers/{self.asked.table}_{tool.name}.py"
            return [self.asked.python, str(script), str(self.data), str(out)]
        recipe = out / "recipe.toml"
        recipe.write_text(RECIPES[self.asked.table].format(data=self.data))
        program = pathlib.Path(self.asked.brimful).parent / "brimful"
        words = ["prepare", recipe, "--out", out / "result", "--memory", self.asked.memory, "--json"]
        return [str(word) for word in (program, *words)]

    def run(self, tool, number):
        """One run; what the tool reported, and what was seen from outside."""
        found = {"table": self.asked.table, "tool": tool.name, "round": number}
        warm(self.data / FOLDERS[self.asked.table])
        out = pathlib.Path(tempfile.mkdtemp(prefix="out-", dir=self.asked.out or self.data))
        group = Group(f"brimful-prepare-{os.getpid()}-{number}-{tool.name}")
        try:
            with (out / "stdout").open("w+") as stdout, (out / "stderr").open("w+") as stderr:
                started = group.start(
                    self.command(tool, out),
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                )
                try:
                    found |= watch(group, started, self.asked.longest)
                finally:
                    group.end()
                    started.wait()
            found |= {"result_bytes": size_of(out / "result"), "left_bytes": size_of(out / "work")}
            said = (out / "stderr").read_text(errors="replace")
            lines = (out / "stdout").read_text(errors="replace").splitlines()
            if found["code"] == 0:
                # brimful prints one document, the others a line after whatever their libraries print.
                reported = json.loads("\n".join(lines) if tool is BRIMFUL else lines[-1])
                found |= {key: reported[key] for key in REPORTED if key in reported}
            else:
                found.setdefault("said", said[-1500:] or "\n".join(lines)[-1500:])
        except (ValueError, IndexError):
            found["said"] = "no report on standard output"
        finally:
            group.remove()
            shutil.rmtree(out, ignore_errors=True)
        return self.judged(found)

    def judged(self, found):
        """Add whether the dataset is what was asked for."""
        if "said" in found:
            return found
        if self.asked.table == "text":
            expected = self.expected["tokens"]
            kept = found["samples"] * BLOCK
            dropped = found.get("dropped_tokens")
            # What brimful reports must add up; of the others only what is in the result is known.
            exact = dropped is None or kept + dropped == expected
            if not exact or not expected * (1 - MAX_LOST) <= kept <= expected:
                found["said"] = f"expected {expected} tokens, found {kept} in blocks, {dropped} dropped"
            smallest = kept * 2
        else:
            expected = self.expected[FOLDERS[self.asked.table]]
            if found["samples"] != expected:
                found["said"] = f"expected {expected} samples, found {found['samples']}"
            smallest = expected * (BLOCK * 2 if self.asked.table == "shuffle" else 224 * 224 * 3)
        if found["result_bytes"] < smallest:
            found["said"] = f"expected at least {smallest} bytes, found {found['result_bytes']}"
        return found


def show(tools, results, found_versions):
    """Print the table and the versions that it is about."""
    good = {name: [run for run in runs if "said" not in run] for name, runs in results.items()}

    def middle(name, key):
        return statistics.median(run[key] for run in good[name]) if good.get(name) else None

    head = ["tool", "CPU s", "ratio", "peak MB", "ratio", "wall s", "result MB", "left over MB", "samples"]
    print("\n| " + " | ".join(head) + " | order |\n|---|" + "---:|" * (len(head) - 1) + "---|")
    for tool in tools:
        if not results[tool.name]:
            continue
        label = f"**{tool.label}**" if tool is BRIMFUL else tool.label
        if not good[tool.name]:
            print(f"| {label} | failed |" + " |" * (len(head) - 2) + f" {tool.order} |")
            continue
        words = []
        for key, scale in (("cpu_seconds", 1), ("peak_bytes", 1e6)):
            ours, theirs = middle("brimful", key), middle(tool.name, key)
            words += [f"{theirs / scale:,.1f}" if scale == 1 else f"{theirs / scale:,.0f}"]
            words += [f"{theirs / ours:.1f}" if ours else ""]
        words.append(f"{middle(tool.name, 'seconds'):,.1f}")
        words += [f"{middle(tool.name, key) / 1e6:,.0f}" for key in ("result_bytes", "left_bytes")]
        words.append(f"{middle(tool.name, 'samples'):,.0f}")
        print(f"| {label} | " + " | ".join(words) + f" | {tool.order} |")
    print()
    for tool in tools:
        for said in sorted({run["said"] for run in results[tool.name] if "said" in run}):
            print(f"{tool.label} failed: {said}")
    rounds = max((len(runs) for runs in results.values()), default=0)
    print(f"Rounds: {rounds}. Versions:", ", ".join(f"{name} {of}" for name, of in found_versions.items()))


def main():
    """Run a table and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("data", type=pathlib.Path, help="the folder that make_data.py has filled")
    parser.add_argument("--brimful", help="the Python of an environment with brimful")
    parser.add_argument("--python", default=sys.executable, help="of the others")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="names of tools with commas between")
    parser.add_argument("--memory", default="256MiB", help="budget of brimful")
    parser.add_argument("--longest", type=float, default=1800, help="seconds of one run")
    parser.add_argument(
        "--out", type=pathlib.Path, help="where results are written, and removed; else in DATA"
    )
    parser.add_argument("--output", type=pathlib.Path, default="runs.jsonl", help="each run as a line")
    asked = parser.parse_args()
    # Asked to end, it ends what it has started and prints the table of the runs that are complete.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    only = asked.only.split(",") if asked.only else [tool.name for tool in TABLES[asked.table]]
    tools = [tool for tool in TABLES[asked.table] if tool.name in only]
    packages = [tool.package for tool in tools if tool is not BRIMFUL]
    found_versions = versions(asked.brimful, ["brimful"]) if asked.brimful else {}
    found_versions |= versions(asked.python, packages + BESIDE[asked.table])
    for tool in tools:
        if tool.package not in found_versions:
            print(f"{tool.label} skipped: {tool.package} is not installed", flush=True)
    tools = [tool for tool in tools if tool.package in found_versions]
    bench = Bench(asked)
    results = {tool.name: [] for tool in tools}
    with contextlib.suppress(SystemExit, KeyboardInterrupt):
        for number, tool in itertools.product(range(asked.rounds), tools):
            found = bench.run(tool, number)
            results[tool.name].append(found)
            with asked.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found | {"versions": found_versions}) + "\n")
            words = found.get("said") or f"{found['cpu_seconds']} CPU s, {found['peak_bytes'] / 1e6:.0f} MB"
            print(f"round {number} {tool.name}: {words[-300:]}", file=sys.stderr, flush=True)
    show(tools, results, found_versions)


if __name__ == "__main__":
    main()
