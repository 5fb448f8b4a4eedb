"""Prepare text in control groups that leave 64 MB besides the budget, and while it is killed again and again.

    python benches/prepare/limits.py DATA [--rounds 20] [--memory 256MiB]

Needs an environment with brimful, the data of `make_data.py` and the right to make control groups. Prints
one line of JSON: how many runs of each kind were finished with the same digest, the peaks, and what the kills
have cost.
"""

import argparse
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from groups import Group

PROGRAM = pathlib.Path(sys.executable).parent / "brimful"
RECIPE = """
source = {{ lines = "{data}/text/*.jsonl", json = "text" }}
ops = [{{ tokenize = "{data}/tok.json", end_id = 0 }}]
block = 2049
seed = 1
shard = "8MiB"
split = "{split}"
"""
MB = 1_000_000


def command(recipe, out, *options):
    """Return the words of a command."""
    return [str(PROGRAM), "prepare", str(recipe), "--out", str(out), "--json", *options]


def in_group(recipe, out, limit, *options):
    """Run in a control group; the result (nothing if it failed) and the highest memory use in MB."""
    group = Group(f"brimful-limits-{time.monotonic_ns()}", limit)
    try:
        process = group.start(command(recipe, out, *options), stdout=subprocess.PIPE, text=True)
        peak = 0
        while process.poll() is None:
            peak = max(peak, sum(group.use()))
            time.sleep(0.02)
        said = process.stdout.read()
        kills = group.kills()
    finally:
        group.end()
        group.remove()
    shutil.rmtree(out, ignore_errors=True)
    finished = process.returncode == 0 and not kills
    return (json.loads(said) if finished else None), peak / MB


def killed_once(recipe, out, seconds, draw):
    """Kill a command at a random moment and start it again; the digest, and the tasks that were lost."""
    nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(recipe, out), **nowhere)
    time.sleep(draw.uniform(0, seconds))
    process.send_signal(signal.SIGKILL)
    process.wait()
    work = out / ".brimful-prepare"
    attempts = [path for path in out.rglob("*.attempt-*") if ".documents.attempt-" not in path.name]
    half_made = [path.name for path in out.glob("shard-*") if path.stat().st_size == 0]
    had_manifest = (out / "manifest.json").exists() and work.exists()
    done = subprocess.run(command(recipe, out), capture_output=True, text=True, check=True)
    left = list(out.rglob("*.attempt-*"))
    shutil.rmtree(out)
    return {
        "digest": json.loads(done.stdout)["digest"],
        "lost tasks": len(attempts),
        "half made": half_made,
        "left over": len(left),
        "after the manifest": had_manifest,
    }


def size(text):
    """Return bytes of a size in MiB."""
    return int(text.removesuffix("MiB")) << 20


def main():
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--memory", default="256MiB")
    options = parser.parse_args()
    scratch = tempfile.TemporaryDirectory(prefix="limits-", dir=options.data.resolve().parent)
    folder = pathlib.Path(scratch.name)
    recipe, small = folder / "recipe.toml", folder / "small.toml"
    recipe.write_text(RECIPE.format(data=options.data.resolve(), split="32MiB"))
    small.write_text(RECIPE.format(data=options.data.resolve(), split="2MiB"))
    report = {}

    limit = size(options.memory) + 64 * MB
    found = [
        in_group(recipe, folder / "out", limit, "--memory", options.memory) for _ in range(options.rounds)
    ]
    digests = {result["digest"] for result, _ in found if result}
    report["budget + 64 MB"] = {
        "finished": sum(result is not None for result, _ in found),
        "of": options.rounds,
        "digests": len(digests),
        "peak MB": round(max(peak for _, peak in found)),
        "limit MB": round(limit / MB),
    }
    result, peak = in_group(recipe, folder / "out", 160 * MB, "--memory", "64MiB")
    same = result is not None and {result["digest"]} == digests
    report["160 MB in all"] = {"finished": result is not None, "same digest": same, "peak MB": round(peak)}

    began = time.monotonic()
    whole = subprocess.run(command(small, folder / "out"), capture_output=True, text=True, check=True)
    seconds = time.monotonic() - began
    shutil.rmtree(folder / "out")
    draw = random.Random(7)
    kills = [killed_once(small, folder / "out", seconds, draw) for _ in range(options.rounds)]
    expected = json.loads(whole.stdout)["digest"]
    report["kills"] = {
        "same digest": sum(kill["digest"] == expected for kill in kills),
        "of": options.rounds,
        "most tasks lost by one": max(kill["lost tasks"] for kill in kills),
        "half made": sum(bool(kill["half made"]) for kill in kills),
        "left over": sum(kill["left over"] for kill in kills),
        "after the manifest": sum(kill["after the manifest"] for kill in kills),
    }
    scratch.cleanup()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
