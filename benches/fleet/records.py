"""A summary of many records: time, memory, and whether DuckDB gives the same numbers.

    cargo build --release -p brimful-fleet --example synthesize
    python benches/fleet/records.py --synthesize target/release/examples/synthesize [--runs 100000]

Needs `brimful` (installed from a wheel), duckdb, and about 500 MB of disk. The page cache is warm: the
files were just written. Both engines are asked in turns; peaks are those of the process (`ru_maxrss`).
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from queries import answers, differences

HERE = pathlib.Path(__file__).resolve().parent


def measured(command):
    """Seconds, megabytes at the peak, and the output of a command."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed: {status}")
    return time.monotonic() - began, usage.ru_maxrss / 1000, out


def main():
    """Print one line for each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--synthesize", default="synthesize")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--duckdb-of", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.duckdb_of:
        files = sorted(arguments.duckdb_of.rglob("*.parquet"))
        # DuckDB ends at the first torn file; it gets those that are whole.
        whole = [path for path in files if int(path.stem.removeprefix("run-")) % 100 != 99]
        print(json.dumps(answers(whole)))
        return
    brimful = shutil.which("brimful") or sys.exit("brimful is not installed")
    with tempfile.TemporaryDirectory(prefix="brimful-records-") as directory:
        subprocess.run([arguments.synthesize, directory, str(arguments.runs)], check=True)
        n_bytes = sum(path.stat().st_size for path in pathlib.Path(directory).rglob("*.parquet"))
        print(f"{arguments.runs} files, {n_bytes / 1e6:.0f} MB")
        commands = {
            "brimful": [brimful, "runs", "--at", directory, "--json"],
            "duckdb": [sys.executable, __file__, "--duckdb-of", directory],
        }
        found = {name: [] for name in commands}
        for _ in range(arguments.repeat):
            for name, command in commands.items():
                found[name].append(measured(command))
        for name, results in found.items():
            seconds = statistics.median(result[0] for result in results)
            print(f"{name:8} {seconds:6.2f} s  {max(result[1] for result in results):6.0f} MB")
        ours, theirs = (json.loads(found[name][-1][2]) for name in ("brimful", "duckdb"))
        print(f"{ours['n_skipped_files']} torn files skipped, {ours['n_newer_rows']} newer rows")
        wrong = list(differences(ours, theirs))
        print("\n".join(wrong) if wrong else "DuckDB gives the same numbers")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
