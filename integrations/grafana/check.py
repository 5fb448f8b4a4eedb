"""Show a run that dies to Prometheus, and ask it for everything that the dashboard shows.

    python integrations/grafana/check.py [--picture FILE]

Needs root, Debian's packages prometheus and prometheus-node-exporter, and an environment with brimful and the
CUDA build of torch. A job that grows runs in a cgroup, on a phantom GPU. The kernel kills it, brimful starts
it again one rung lower, and the kernel kills it again. The node exporter reads the metrics file; Prometheus
scrapes the node exporter every second, both on free ports of loopback. Fails if a query of the dashboard has
no data.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benches/prepare"))

import dashboard
import drawing
from groups import Group
from ray_kills import PROGRAM, until
from slurm import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
LIMIT = 1 << 30
# In seconds. Two attempts take about a minute.
START_TIMEOUT, RUN_TIMEOUT = 30, 240
SCRAPE_SECONDS = 1
# brimful writes the file every 5 seconds; Grafana makes the interval at least 4 scrapes of 15 seconds.
RATE_SECONDS = 20
KILLED = 137
SELECTED = "brimful_attempt_seconds"
# Another process holds 2 GB of the GPU.
GPU = "name=Tesla T4,memory=15634661376,held=2000000000,cc=7.5,multiprocessors=40"
TRAIN = """
import sys, time, torch
model = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for step in range(700):
    model(torch.zeros(8, 4096, device="cuda")).sum().backward()
    optimizer.step()
    # A list that grows with every step, in each worker.
    kept.append((torch.zeros(1 << 18, device="cuda"), b"x" * (int(sys.argv[2]) << 19)))
    time.sleep(0.05)
# The kernel kills at once. Slow growth makes it drop and read code for minutes before that.
kept.append(b"x" * (1 << 30))
"""
JOB = """
[job]
command = ["{python}", "train.py", "--workers", "{{workers}}"]

[knobs]
workers = [2, 1]
"""
PROMETHEUS = """
global: {{scrape_interval: {seconds}s}}
scrape_configs:
  - job_name: node
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def main() -> int:
    """Return 0 if every query has data."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the dashboard to this SVG file")
    picture = parser.parse_args().picture
    shown = dashboard.read()
    for problem in (found := dashboard.problems(shown)):
        print(problem)
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="grafana-"))
        address = stack.enter_context(services(Path(scratch)))
        began = time.time()
        run(Path(scratch))
        # What has ended is known only when the file has not changed for a while.
        time.sleep(RATE_SECONDS + 5)
        prometheus = Prometheus(address, began)
        answers = prometheus.answers(shown)
        if picture:
            picture.write_text(drawing.picture(shown, answers, (prometheus.began, prometheus.ended)))
    empty = [query for query, answer in answers.items() if not answer]
    for query in empty:
        print(f"no data: {query}")
    return 1 if found or empty else 0


@contextlib.contextmanager
def services(scratch: Path) -> Iterator[str]:
    """Start the node exporter and Prometheus; return the address of the second."""
    exporter_port, port = free_ports(2)
    for name in ("textfile", "prometheus"):
        (scratch / name).mkdir()
    configuration = scratch / "prometheus.yml"
    configuration.write_text(PROMETHEUS.format(seconds=SCRAPE_SECONDS, port=exporter_port))
    exporter = [
        "prometheus-node-exporter",
        "--collector.disable-defaults",
        "--collector.textfile",
        f"--collector.textfile.directory={scratch}/textfile",
        f"--web.listen-address=127.0.0.1:{exporter_port}",
    ]
    prometheus = [
        "prometheus",
        f"--config.file={configuration}",
        f"--storage.tsdb.path={scratch}/prometheus",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    address = f"http://127.0.0.1:{port}"
    with daemon(exporter, scratch), daemon(prometheus, scratch):
        until(lambda: is_up(f"{address}/-/ready"), START_TIMEOUT, "start of Prometheus")
        yield address


@contextlib.contextmanager
def daemon(line: list[str], scratch: Path) -> Iterator[None]:
    """Run a program of Debian while the body runs."""
    found = shutil.which(line[0])
    if found is None:
        raise SystemExit(f"{line[0]} is not installed; run `apt-get install {line[0]}`")
    with (scratch / f"{line[0]}.log").open("w") as log:
        started = subprocess.Popen([found, *line[1:]], stdout=log, stderr=log)
    try:
        yield
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def is_up(address: str) -> bool:
    """Return true if a server answers."""
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):  # noqa: S310
        return True
    return False


def run(scratch: Path) -> None:
    """Run the job until it is dead, with its metrics where the node exporter looks."""
    job = scratch / "job"
    job.mkdir()
    (job / "train.py").write_text(TRAIN)
    (job / "brimful.toml").write_text(JOB.format(python=sys.executable))
    phantom = stage_phantom(scratch / "libraries")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(phantom),
        "LD_LIBRARY_PATH": str(phantom.parent),
        "BRIMFUL_PHANTOM_DEVICES": GPU,
        "BRIMFUL_PHANTOM_CUDNN_VERSION": "99900",
        "BRIMFUL_STATE_DIR": str(scratch / "state"),
    }
    line = [PROGRAM, "run", "--as-wanted", "--attempts", "2", "--gpu", "t4"]
    group = Group(f"grafana-check-{os.getpid()}", LIMIT)
    try:
        metrics = ["--metrics-file", scratch / "textfile/train.prom"]
        code, _, said = group.run([*map(str, line + metrics)], timeout=RUN_TIMEOUT, cwd=job, env=environment)
    finally:
        group.end()
        group.remove()
    print(said.strip())
    if code != KILLED:
        raise SystemExit(f"the run ended with {code}, expected {KILLED}")


def stage_phantom(folder: Path) -> Path:
    """Lay out the library of the installed wheel, with a link for each name that it answers to."""
    folder.mkdir()
    library = PROGRAM.parents[1] / "lib/brimful/libbrimful_phantom.so"
    copy = Path(shutil.copy(library, folder))
    for name in (ROOT / "crates/brimful-phantom/sonames.txt").read_text().split():
        (folder / name).symlink_to(copy.name)
    return copy


class Prometheus:
    """A Prometheus that has seen the run."""

    def __init__(self, address: str, began: float) -> None:
        """Ask for everything since the run began."""
        self.address, self.began, self.ended = address, began, time.time()

    def answers(self, shown: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return what each query answers, and print a line for each."""
        found: dict[str, list[dict[str, Any]]] = {}
        for variable in shown["templating"]["list"]:
            if variable["type"] == "query":
                label = variable["definition"].rpartition(", ")[2].rstrip(")")
                found[variable["definition"]] = self.get(f"label/{label}/values", {"match[]": SELECTED})
        for _, query in dashboard.queries(shown):
            found[query] = self.get("query_range", {"query": self.filled(query), "step": "1"})["result"]
        names = {query: name for name, query in dashboard.queries(shown)}
        for query, answer in found.items():
            points = sum(len(series["values"]) for series in answer) if query in names else len(answer)
            print(f"{len(answer)} series, {points} points: {names.get(query, 'variable')}: {query}")
        return found

    def filled(self, query: str) -> str:
        """Return a query with the values that Grafana puts in for its variables."""
        seconds = {"__rate_interval": RATE_SECONDS, "__range": int(self.ended - self.began)}
        for name, value in seconds.items():
            query = query.replace(f"${name}", f"{value}s")
        return query.replace("$instance", ".+").replace("$run", ".+")

    def get(self, path: str, asked: dict[str, str]) -> Any:  # noqa: ANN401
        """Return what the API answers."""
        times = {"start": str(self.began), "end": str(self.ended)}
        address = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode({**asked, **times})}"
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310
            return json.load(answer)["data"]


if __name__ == "__main__":
    sys.exit(main())
