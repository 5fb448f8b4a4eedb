"""Host memory as predicted, against the real runs of the three example projects.

Each project is rehearsed once (or once for each start method: --rehearse each) with one worker, on the
processors. Then it is run for real with 0, 1, 2 and 4 workers and each start method in a control group
without a limit, where anonymous and shared memory of all of its processes are read every 10 ms. Needs the
right to make control groups.

    python benches/host_accuracy.py --brimful target/release/brimful --examples examples [--only nyu-depth]

With --truth FILE what was measured is kept there, and not measured again the next time.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from groups import Group

METHODS = ("fork", "forkserver", "spawn")
WORKERS = (0, 1, 2, 4)


class Project:
    """One example, made small: how its data is made, and its arguments."""

    def __init__(self, name, data, output, arguments):
        self.name, self.data, self.output, self.arguments = name, data, output, arguments


PROJECTS = (
    Project(
        "nyu-depth",
        ["--samples", "240"],
        "nyu.h5",
        ["--epochs", "1", "--resolution", "64", "--batch-size", "16", "--eval-batch-size", "16"],
    ),
    Project(
        "wikitext-sparse",
        ["--megabytes", "24"],
        "corpus.txt",
        ["--model", "tiny", "--max-steps", "40", "--negatives", "256"],
    ),
    Project(
        "modelnet-voxel",
        ["--meshes", "100"],
        "meshes",
        ["--model", "tiny", "--max-steps", "20"],
    ),
)


def measure(command, environment):
    """Run a command; the highest use of all of its processes, in all and in shared memory."""
    group = Group(f"brimful-host-{os.getpid()}")
    try:
        run = group.start(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        highest = shared = 0
        while run.poll() is None:
            anon, shmem = group.use()
            highest, shared = max(highest, anon + shmem), max(shared, shmem)
            time.sleep(0.01)
        said = run.stderr.read().decode()
        if run.returncode != 0:
            print(f"{' '.join(command)}\nended with {run.returncode}\n{said[-600:]}", file=sys.stderr)
            return None
        return {"bytes": highest, "shm_bytes": shared}
    finally:
        group.remove()


class Bench:
    """What is given for all runs."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        self.environment["PYTHONWARNINGS"] = "ignore"
        self.truth = {}
        if arguments.truth and arguments.truth.exists():
            self.truth = json.loads(arguments.truth.read_text())

    def command(self, project, folder, workers, method):
        """Return the training command of one cell."""
        script = self.arguments.examples / project.name / "train.py"
        outputs = folder / f"outputs-{workers}-{method}"
        own = ["--data", str(folder / project.output), "--output", str(outputs)]
        own += ["--workers", str(workers), "--start-method", method]
        return [self.arguments.python, str(script), *own, *project.arguments]

    def make_data(self, project, folder):
        """Make the data once."""
        folder.mkdir(parents=True, exist_ok=True)
        output = folder / project.output
        if not output.exists():
            script = self.arguments.examples / project.name / "make_data.py"
            command = [self.arguments.python, str(script), *project.data, "--output", str(output)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def predict(self, project, folder, method):
        """Rehearse with one worker; the table for all workers and methods."""
        command = [self.arguments.brimful, "predict", "--gpu", "none", "--json", "--"]
        command += self.command(project, folder, 1, method)
        done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, check=True)
        host = json.loads(done.stdout)["host"]
        return {(row["start_method"], row["workers"]): row for row in host["by_workers"]}

    def real(self, project, folder, workers, method):
        """Run a cell for real, or remember it."""
        settings = " ".join(project.arguments + project.data)
        key = f"{project.name} {workers} {method if workers else 'fork'} {settings}"
        if key not in self.truth:
            self.truth[key] = measure(self.command(project, folder, workers, method), self.environment)
            if self.arguments.truth:
                self.arguments.truth.write_text(json.dumps(self.truth, indent=1))
        return self.truth[key]

    def cells(self, project, folder):
        """Return the rows of one project."""
        self.make_data(project, folder)
        rehearsed = METHODS if self.arguments.rehearse == "each" else (own_method(self.arguments, project),)
        tables = {method: self.predict(project, folder, method) for method in rehearsed}
        for method in METHODS:
            table = tables.get(method) or tables[rehearsed[0]]
            for workers in WORKERS:
                if workers == 0 and method != METHODS[0]:
                    continue  # nobody is started
                real = self.real(project, folder, workers, method)
                if real is not None:
                    yield project.name, method, workers, real, table[method, workers]


def own_method(arguments, project):
    """Return the start method that the script has by default."""
    if arguments.rehearse in METHODS:
        return arguments.rehearse
    text = (arguments.examples / project.name / "train.py").read_text()
    line = next(line for line in text.splitlines() if "--start-method" in line)
    return next((method for method in METHODS if f'default="{method}"' in line), "fork")


def show(rows):
    """Print the table and its summary."""
    print(
        "| project | start method | workers | measured MB | likely MB | error | safe MB | shm | shm likely |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    errors, below = [], 0
    for name, method, workers, real, predicted in rows:
        likely, safe = predicted["bytes"]["likely"], predicted["bytes"]["safe"]
        error = likely / real["bytes"] - 1
        errors.append(abs(error))
        mark = ""
        if safe < real["bytes"]:
            below += 1
            mark = " (below)"
        numbers = f"{real['bytes'] / 1e6:.0f} | {likely / 1e6:.0f} | {error:+.1%} | {safe / 1e6:.0f}{mark}"
        shared = f"{real['shm_bytes'] / 1e6:.1f} | {predicted['shm_bytes']['likely'] / 1e6:.1f}"
        print(f"| {name} | {method} | {workers} | {numbers} | {shared} |", flush=True)
    print()
    print(
        f"{len(errors)} cells: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}; "
        f"safe below the measured value in {below} ({below / len(errors):.1%})"
    )


def main():
    """Measure, predict, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brimful", default="brimful")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--examples", type=pathlib.Path, default="examples")
    parser.add_argument("--only", action="append", help="a project; may be given more than once")
    parser.add_argument("--rehearse", choices=("own", "each", *METHODS), default="own")
    parser.add_argument("--data", type=pathlib.Path, help="keep the data in this folder")
    parser.add_argument("--truth", type=pathlib.Path, help="keep what was measured in this file")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for project in PROJECTS:
            if not arguments.only or project.name in arguments.only:
                folder = (arguments.data or pathlib.Path(temporary)) / project.name
                rows.extend(bench.cells(project, folder))
    show(rows)


if __name__ == "__main__":
    main()
