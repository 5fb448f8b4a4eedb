"""Rehearse scripts of popular stacks, unchanged, and print the table of docs/reference/works-with.md.

python benches/works_with/works_with.py SCRIPTS PYTHON [NAMES] > docs/reference/works-with.md
SCRIPTS is a directory with the scripts of `scripts.json`, PYTHON a Python with the packages that they import.
Needs `brimful` on PATH, or its path in BRIMFUL. Names after that choose some of the scripts.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 400
MIB = 1 << 20
HEADER = """# Works with

What `brimful predict --gpu l4` says to quick-starts of popular stacks, written as their documentation shows.
The scripts know nothing of brimful; weights and data are made up. Made by `benches/works_with/works_with.py`.

The lower bound is counted from the tensors of the script: weights, optimizer state, and the larger of the
gradients and the largest output of a module. A figure below it would be wrong. "-" means that the script has
no optimizer of PyTorch.
"""


def rehearse(entry: dict, scripts: Path, python: Path, *, bound: bool) -> tuple[int, dict | None, str, float]:
    """Run one prediction: exit code, document, the script's output and messages, seconds."""
    program = os.environ.get("BRIMFUL", "brimful")
    output = Path("/tmp") / f"brimful-works-with-{os.getpid()}.txt"  # noqa: S108
    output.unlink(missing_ok=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", **entry.get("environment", {})}
    environment["PATH"] = f"{python.parent}:{environment['PATH']}"
    if bound:
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(HERE / "lower_bound") + (f":{known}" if known else "")
    command = [program, "predict", "--gpu", entry.get("gpu", "l4"), "--json", "--output", str(output), "--"]
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, *entry["command"].split()],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            cwd=scripts / entry.get("directory", "."),
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return 124, None, "", time.perf_counter() - began
    seconds = time.perf_counter() - began
    said = output.read_text(errors="replace") if output.exists() else ""
    output.unlink(missing_ok=True)
    try:
        return done.returncode, json.loads(done.stdout), said, seconds
    except ValueError:
        return done.returncode, None, done.stderr, seconds


def row(entry: dict, scripts: Path, python: Path) -> tuple[str, str]:
    """One line of the table, and whether it is an answer, a refusal or a failure."""
    code, document, text, seconds = rehearse(entry, scripts, python, bound=False)
    if document is None:
        said = re.findall(r"error: (.*)", text)
        kind = "refused" if entry.get("refused") and said else "failed"
        reason = said[0] if said else f"exit code {code}"
        return (
            f"| {entry['stack']} | `{entry['command']}` | {kind}: {reason} | {seconds:.0f} | - | - | |",
            kind,
        )
    _, second, said, _ = rehearse(entry, scripts, python, bound=True)
    bounds = [int(found) for found in re.findall(r"lower bound: (\d+)", said)]
    peak = document["peak"]["allocated_bytes"]
    bound = f"{max(bounds) / MIB:,.0f}" if bounds and second is not None else "-"
    kind = "too low" if bounds and second and second["peak"]["allocated_bytes"] < max(bounds) else "answered"
    caveats = ", ".join(f"`{caveat['id']}`" for caveat in document["caveats"])
    cells = [
        entry["stack"],
        f"`{entry['command']}`",
        f"{kind}, {document['steps']} steps",
        f"{seconds:.0f}",
        f"{peak / MIB:,.0f}",
        bound,
        caveats,
    ]
    return f"| {' | '.join(cells)} |", kind


def versions(python: Path, packages: list[str]) -> str:
    """The packages that were used, as pip names them."""
    script = """
import importlib.metadata as metadata, sys
for name in sys.argv[1:]:
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
"""
    found = subprocess.run([python, "-c", script, *packages], capture_output=True, text=True, check=True)
    return ", ".join(found.stdout.splitlines())


def main() -> None:
    """Rehearse and print."""
    scripts, python, names = Path(sys.argv[1]), Path(sys.argv[2]).absolute(), sys.argv[3:]
    manifest = json.loads((HERE / "scripts.json").read_text())
    kinds: dict[str, int] = {}
    rows = []
    for entry in manifest["scripts"]:
        if names and entry["name"] not in names:
            continue
        if not (scripts / entry.get("directory", ".") / entry["needs"]).exists():
            continue
        line, kind = row(entry, scripts, python)
        sys.stderr.write(line + "\n")
        kinds[kind] = kinds.get(kind, 0) + 1
        rows.append(line)
    print(HEADER)
    print(f"Seen with {versions(python, manifest['packages'])}.\n")
    print(
        ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) + f", of {len(rows)} scripts.\n"
    )
    print("| Stack | Command | Result | Seconds | Peak in tensors, MiB | Lower bound, MiB | Caveats |")
    print("|---|---|---|---:|---:|---:|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
