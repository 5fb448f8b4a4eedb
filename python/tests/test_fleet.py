"""`brimful run --records` and `--otlp`, and `brimful.runs(at=...)`: read by other programs."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb  # type: ignore[import-not-found, unused-ignore]
import pytest
from opentelemetry.proto.collector.metrics.v1 import (  # type: ignore[import-not-found, unused-ignore]
    metrics_service_pb2,
)

import brimful

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).parent / "brimful"
SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123456789"  # noqa: S105
FAILS = "import sys; sys.exit('CUDA out of memory. Tried to allocate 20.00 GiB')"


def run(
    directory: Path, *options: str, code: str = "print('trained')", words: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a script below brimful."""
    (directory / "train.py").write_text(code, encoding="utf-8")
    command = [str(PROGRAM), "run", "--state-dir", str(directory / "state"), *options]
    return subprocess.run(
        [*command, "--", sys.executable, "train.py", *words],
        cwd=directory,
        env=os.environ | {"WANDB_API_KEY": SECRET, "OTEL_METRIC_EXPORT_INTERVAL": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def rows(records: Path) -> list[dict[str, Any]]:
    """Read all records by another engine."""
    table = duckdb.read_parquet(f"{records}/*.parquet")
    found = table.select("* exclude started_at").order("run, attempt")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def test_a_run_leaves_a_row_without_its_secrets(tmp_path: Path) -> None:
    records = tmp_path / "records"
    ended = run(tmp_path, "--records", str(records), code=FAILS, words=("--token", SECRET))
    assert ended.returncode == 1
    [row] = rows(records)
    assert row["script"] == "train.py"
    assert (row["outcome"], row["exit_code"], row["is_last"]) == ("failed", 1, True)
    assert (row["cause"], row["is_memory"]) == ("cuda_oom_exhausted", True)
    [file] = records.iterdir()
    content = file.read_bytes()
    assert SECRET.encode() not in content
    assert str(tmp_path).encode() not in content
    fleet = brimful.runs(at=records)
    assert (fleet.n_runs, fleet.n_died_of_memory, fleet.jobs[0].script) == (1, 1, "train.py")


def test_runs_of_a_job_have_the_same_digest(tmp_path: Path) -> None:
    records = tmp_path / "records"
    for words in [(), (), ("--lr", "1")]:
        run(tmp_path, "--records", str(records), words=words)
    digests = [row["job"] for row in rows(records)]
    assert digests[0] == digests[1] != digests[2]


def test_a_place_that_cannot_be_written_costs_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    ended = run(tmp_path, "--records", str(tmp_path / "file/records"))
    assert ended.returncode == 0
    assert ended.stdout == "trained\n"
    assert "brimful: this run may not be recorded" in ended.stderr
    assert "brimful: the run was not recorded" in ended.stderr
    # The next run with this destination tries again.
    (tmp_path / "file").unlink()
    run(tmp_path, "--records", str(tmp_path / "file/records"))
    assert len(rows(tmp_path / "file/records")) == 2


def test_a_run_whose_supervisor_was_killed_is_recorded_by_the_next_one(tmp_path: Path) -> None:
    records = tmp_path / "records"
    (tmp_path / "train.py").write_text("import time; time.sleep(600)", encoding="utf-8")
    command = [str(PROGRAM), "run", "--state-dir", "state", "--records", str(records)]
    killed = subprocess.Popen([*command, "--", sys.executable, "train.py"], cwd=tmp_path)
    try:
        until = time.monotonic() + 30
        pids: list[int] = []
        while not pids and time.monotonic() < until:
            time.sleep(0.1)
            for record in (tmp_path / "state").glob("runs/*/record.jsonl"):
                lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
                pids = [line["pid"] for line in lines if line["line"] == "attempt"]
        assert pids
    finally:
        killed.kill()
        killed.wait()
    # As if the whole machine had lost power.
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    run(tmp_path, "--records", str(records))
    assert len(rows(records)) == 2
    assert "finished" in {row["outcome"] for row in rows(records)}
    # Runs that were not to be recorded are not.
    run(tmp_path)
    run(tmp_path, "--records", str(records))
    assert len(rows(records)) == 3


def test_another_engine_counts_the_same(tmp_path: Path) -> None:
    queries = runpy.run_path(str(ROOT / "benches/fleet/queries.py"))
    records = tmp_path / "records"
    for code in ["print()", FAILS, "import sys; sys.exit(3)"]:
        run(tmp_path, "--records", str(records), code=code)
    whole = sorted(records.iterdir())
    torn = records / "torn.parquet"
    torn.write_bytes(whole[0].read_bytes()[:-100])
    found = brimful.runs(at=records).to_dict()
    assert (found["n_files"], found["n_skipped_files"]) == (4, 1)
    assert list(queries["differences"](found, queries["answers"](whole))) == []


def test_the_command_prints_a_page_and_writes_a_report(tmp_path: Path) -> None:
    records = tmp_path / "records"
    run(tmp_path, "--records", str(records), code=FAILS)
    report = tmp_path / "fleet.html"
    command = [str(PROGRAM), "runs", "--at", str(records)]
    shown = subprocess.run(
        [*command, "--report", str(report)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "cuda_oom_exhausted" in shown.stdout
    assert "Jobs that ran out of memory" in report.read_text(encoding="utf-8")
    missing = subprocess.run(
        [str(PROGRAM), "runs", "--at", str(tmp_path / "x")], capture_output=True, text=True, check=False
    )
    assert missing.returncode == 96
    assert "hint: " in missing.stderr
    with pytest.raises(brimful.InputError):
        brimful.runs(at=tmp_path / "x")


class Collector(BaseHTTPRequestHandler):
    """Takes metrics as a collector does, and nothing else."""

    requests: list[metrics_service_pb2.ExportMetricsServiceRequest]

    def do_POST(self) -> None:
        assert self.path == "/v1/metrics"
        assert self.headers["Content-Type"] == "application/x-protobuf"
        request = metrics_service_pb2.ExportMetricsServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).requests.append(request)
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[HTTPServer]:
    Collector.requests = []
    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_collector_gets_the_metrics_of_a_run(tmp_path: Path, collector: HTTPServer) -> None:
    url = f"http://127.0.0.1:{collector.server_port}"
    code = "import time; held = bytearray(200 << 20); time.sleep(3); raise SystemExit(3)"
    ended = run(tmp_path, f"--otlp={url}", code=code)
    assert ended.returncode == 3
    assert "metrics" not in ended.stderr
    values: dict[str, list[Any]] = {}
    for request in Collector.requests:
        [resource] = request.resource_metrics
        attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
        assert attributes["service.name"] == "brimful"
        assert attributes["brimful.run.id"]
        for metric in resource.scope_metrics[0].metrics:
            points = getattr(metric, metric.WhichOneof("data")).data_points
            assert metric.unit
            values.setdefault(metric.name, []).extend(points)
    assert max(point.as_double for point in values["system.memory.usage"]) > 200 << 20
    last = values["brimful.run.ended"][-1]
    assert last.as_double == 1.0
    assert {one.key: one.value.string_value for one in last.attributes}["brimful.outcome"] == "failed"


def test_a_collector_that_is_not_there_costs_a_line(tmp_path: Path) -> None:
    ended = run(tmp_path, "--otlp=http://127.0.0.1:9", code="import time; time.sleep(2)")
    assert ended.returncode == 0
    assert "brimful: metrics do not reach the collector: " in ended.stderr
    wrong = run(tmp_path, "--otlp=localhost:4318")
    assert wrong.returncode == 96
    assert "http://" in wrong.stderr
