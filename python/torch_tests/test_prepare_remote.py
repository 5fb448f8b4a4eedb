"""`brimful prepare` from and to an object store that misbehaves: the same digest as on a disk."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from test_prepare import BLOCK, RECIPE, folder  # noqa: F401

import brimful
import brimful.data as bd

if TYPE_CHECKING:
    from collections.abc import Iterator

boto3 = pytest.importorskip("boto3", reason="boto3 puts the objects into the store")
moto = pytest.importorskip("moto.server", reason="moto is the store")

PROGRAM = Path(sys.executable).parent / "brimful"
SECRET = "not-to-be-shown"  # noqa: S105


class Misbehaving(BaseHTTPRequestHandler):
    """Passes requests on to the store, and misbehaves."""

    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def handle_any(self) -> None:
        """Answer one request, or fail to."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.guard:
            self.server.requests += 1
            fault = self.server.draw.choices(*self.server.faults)[0]
            self.server.counts[fault] = self.server.counts.get(fault, 0) + 1
        if fault == "unavailable":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault == "delayed":
            time.sleep(0.3)
        store = http.client.HTTPConnection(*self.server.store, timeout=60)
        store.request(self.command, self.path, body, dict(self.headers))
        answer = store.getresponse()
        found = answer.read()
        store.close()
        if fault == "dropped":
            # Done, but nobody hears of it.
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "connection", "date", "server"}:
                self.send_header(name, value)
        if answer.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(found[: len(found) // 2] if fault == "cut" else found)
        self.close_connection = fault == "cut"

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815


class QuietServer(ThreadingHTTPServer):
    """Says nothing about clients that were killed."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


class Store:
    """A bucket behind a server that can misbehave."""

    def __init__(self) -> None:
        """Start both."""
        self.moto = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.moto.start()
        host, port = self.moto.get_host_and_port()
        self.proxy: Any = QuietServer(("127.0.0.1", 0), Misbehaving)
        self.proxy.store = (host, port)
        self.proxy.guard = threading.Lock()
        self.proxy.draw = random.Random(5)  # noqa: S311
        self.behave()
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()
        self.client = boto3.client(
            "s3",
            endpoint_url=f"http://{host}:{port}",
            region_name="us-east-1",
            aws_access_key_id="somebody",
            aws_secret_access_key=SECRET,
        )
        self.client.create_bucket(Bucket="data")
        self.environment = {
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ENDPOINT": f"http://127.0.0.1:{self.proxy.server_port}",
            "NO_PROXY": "127.0.0.1",
        }

    def behave(self, **faults: int) -> None:
        """Misbehave in this percentage of requests, for each fault."""
        self.proxy.requests = 0
        self.proxy.counts = {}
        self.proxy.faults = ([*faults, "none"], [*faults.values(), 100 - sum(faults.values())])

    def keys(self, prefix: str) -> list[str]:
        """Return the names below a prefix."""
        found = self.client.list_objects_v2(Bucket="data", Prefix=prefix)
        return [entry["Key"] for entry in found.get("Contents", [])]

    def stop(self) -> None:
        """Stop both."""
        self.proxy.shutdown()
        self.proxy.server_close()
        self.moto.stop()


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    started = Store()
    yield started
    started.stop()


@pytest.fixture
def recipe(folder: Path, store: Store, tmp_path: Path) -> Path:  # noqa: F811
    store.behave()
    for path in sorted(folder.glob("*.jsonl")):
        store.client.put_object(Bucket="data", Key=f"raw/{path.name}", Body=path.read_bytes())
    text = RECIPE.replace("text-*.jsonl", "s3://data/raw/text-*.jsonl")
    assert "s3://" in text
    text = text.replace("tok.json", str(folder / "tok.json"))
    (tmp_path / "recipe.toml").write_text(text)
    return tmp_path / "recipe.toml"


def started(store: Store, recipe: Path, out: str, *options: str) -> subprocess.Popen[str]:
    line = [str(PROGRAM), "prepare", str(recipe), "--out", out, "--memory", "128MiB", "--json", *options]
    variables = {**os.environ, **store.environment}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    said, complained = process.communicate(timeout=300)
    assert process.returncode == 0, complained
    return dict(json.loads(said))


@pytest.fixture(scope="module")
def digest(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: F811
    line = [
        PROGRAM,
        "prepare",
        folder / "recipe.toml",
        "--out",
        tmp_path_factory.mktemp("disk") / "out",
        "--json",
    ]
    said = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return str(json.loads(said)["digest"])


def test_a_store_gives_what_a_disk_gives(
    store: Store, recipe: Path, digest: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert finished(started(store, recipe, "s3://data/plain/"))["digest"] == digest
    # Nothing is left of the runs.
    names = store.keys("plain/")
    assert [name for name in names if "brimful-prepare" in name] == []
    assert "plain/manifest.json" in names
    report = tmp_path / "report.html"
    again = started(store, recipe, "s3://data/plain", "--report", str(report))
    assert finished(again)["digest"] == digest
    assert "from the first shard" in report.read_text()
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    local = brimful.prepare(
        bd.lines([f"s3://data/{name}" for name in store.keys("raw/")], json="text"),
        tmp_path / "out",
        tokenizer=_tokenizer(recipe),
        block=BLOCK,
        end_id=0,
        seed=1,
        shard="1MiB",
        split="1MiB",
    )
    assert local.digest == digest
    blocks = [
        bd.prepared(path, as_int64=True, documents=True) for path in ("s3://data/plain", tmp_path / "out")
    ]
    loaders = [bd.Loader(each, batch_size=64, memory="64MiB", output="numpy") for each in blocks]
    for left, right in zip(*loaders, strict=True):
        assert all((left[name] == right[name]).all() for name in left)


def _tokenizer(recipe: Path) -> str:
    return recipe.read_text().split('tokenize = "')[1].split('"')[0]


def test_a_store_that_misbehaves_changes_nothing(store: Store, recipe: Path, digest: str) -> None:
    store.behave(unavailable=5, delayed=3, dropped=5, cut=2)
    for _ in range(5):
        process = started(store, recipe, "s3://data/misbehaving")
        said, complained = process.communicate(timeout=300)
        assert SECRET not in said + complained
        if process.returncode == 0:
            break
        # A store that fails five times in a row ends the command; the next one continues.
        assert "run the same command again" in complained or "failed to read" in complained, complained
    else:
        pytest.fail(f"five commands failed, the last with: {complained}")
    assert json.loads(said)["digest"] == digest
    assert set(store.proxy.counts) >= {"unavailable", "delayed", "dropped"}, store.proxy.counts
    store.behave()
    assert store.keys("misbehaving/.brimful-prepare") == []


def test_uploads_in_parts_whose_end_is_lost_are_repeated(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    np.save(tmp_path / "x.npy", np.arange(6 << 20, dtype=np.int32).reshape(-1, 1024))
    arrays = bd.npy({"x": tmp_path / "x.npy"})
    expected = brimful.prepare(arrays, tmp_path / "out", shard="24MiB", split="12MiB", progress=False)
    store.behave(dropped=25)
    for _ in range(10):
        try:
            found = brimful.prepare(
                arrays, "s3://data/parts", shard="24MiB", split="12MiB", progress=False, threads=1
            )
        except brimful.MachineError:
            continue
        break
    store.behave()
    assert found.digest == expected.digest
    sizes = store.client.list_objects_v2(Bucket="data", Prefix="parts/shard")["Contents"]
    assert max(entry["Size"] for entry in sizes) > 16 << 20


def test_kills_and_two_commands_at_once_change_nothing(store: Store, recipe: Path, digest: str) -> None:
    draw = random.Random(3)  # noqa: S311
    for _ in range(4):
        process = started(store, recipe, "s3://data/killed")
        time.sleep(draw.uniform(0.3, 2.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert finished(started(store, recipe, "s3://data/killed"))["digest"] == digest
    both = [started(store, recipe, "s3://data/both") for _ in range(2)]
    assert [finished(process)["digest"] for process in both] == [digest, digest]


def test_what_cannot_be_prepared_is_refused(store: Store, recipe: Path, tmp_path: Path) -> None:
    def refused(recipe: Path, out: str) -> str:
        process = started(store, recipe, out)
        _, complained = process.communicate(timeout=60)
        assert process.returncode != 0
        return complained

    assert "contains other files" in refused(recipe, "s3://data/raw")
    assert "s3://BUCKET/PREFIX" in refused(recipe, "https://127.0.0.1/somewhere")
    assert "s3://BUCKET/PREFIX" in refused(recipe, "s3://data")
    assert "begins with s3://" in refused(recipe, "s3a://data/somewhere")
    other = tmp_path / "other.toml"
    other.write_text(recipe.read_text().replace("text-*", "nothing-*"))
    assert "files that match" in refused(other, "s3://data/other")
    signed = "https://me:word@127.0.0.1/x.jsonl?X-Amz-Signature=" + SECRET
    other.write_text(recipe.read_text().replace("s3://data/raw/text-*.jsonl", signed))
    complained = refused(other, "s3://data/other")
    assert "without a user" in complained
    assert SECRET not in complained
    # Changed between two commands.
    process = started(store, recipe, "s3://data/changed")
    while not store.keys("changed/.brimful-prepare/runs/"):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    store.client.put_object(Bucket="data", Key="raw/text-0.jsonl", Body=b'{"text": "another"}\n')
    assert "changed" in refused(recipe, "s3://data/changed")
