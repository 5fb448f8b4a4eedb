"""Records of runs in an object store that misbehaves."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("boto3", reason="boto3 puts the objects into the store")
pytest.importorskip("moto.server", reason="moto is the store")

from test_prepare_remote import PROGRAM, SECRET, Store, store  # noqa: F401

import brimful

if TYPE_CHECKING:
    from pathlib import Path


def run(tmp_path: Path, store: Store, code: int) -> subprocess.CompletedProcess[str]:  # noqa: F811
    """Run a command that ends with this code, and record it in the bucket."""
    options = ["--records", "s3://data/records", "--state-dir", str(tmp_path / "state")]
    return subprocess.run(
        [str(PROGRAM), "run", *options, "--", sys.executable, "-c", f"raise SystemExit({code})"],
        cwd=tmp_path,
        env=os.environ | store.environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_runs_are_recorded_and_summarized_in_an_object_store(
    tmp_path: Path,
    store: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.behave(unavailable=15, dropped=10)
    for code in (0, 0, 3):
        ended = run(tmp_path, store, code)
        assert ended.returncode == code
        assert SECRET not in ended.stderr
    store.behave()
    # What a faulty store has refused is written with the next run.
    assert run(tmp_path, store, 0).returncode == 0
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    store.client.put_object(Bucket="data", Key="records/torn.parquet", Body=b"PAR1torn")
    fleet = brimful.runs(at="s3://data/records")
    assert (fleet.n_runs, fleet.n_files, fleet.n_skipped_files) == (4, 5, 1)
    assert [(cause.cause, cause.n_attempts) for cause in fleet.causes] == [("ambiguous", 1)]


def test_a_store_that_is_not_there_costs_a_line(tmp_path: Path, store: Store) -> None:  # noqa: F811
    unreachable = store.environment | {"AWS_ENDPOINT": "http://127.0.0.1:9"}
    ended = subprocess.run(
        [str(PROGRAM), "run", "--records", "s3://data/x", "--state-dir", str(tmp_path), "--", "true"],
        env=os.environ | unreachable,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ended.returncode == 0
    assert "brimful: the run was not recorded in s3://data/x" in ended.stderr
    assert SECRET not in ended.stderr
