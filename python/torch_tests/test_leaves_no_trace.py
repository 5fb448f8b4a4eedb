"""Rehearsals leave no trace: files are the same afterwards, and no service is written to.

Scripts as people write them: plain PyTorch, a Hugging Face Trainer that pushes to a hub, Lightning with
checkpoints, and one that clears a directory and appends to a file. The hub is a server on this machine.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLAIN = """
    import argparse, csv, os, pathlib, shutil
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--resume")
    asked = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Linear(64, 64).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    step = 0
    if asked.resume:
        saved = torch.load(asked.resume, weights_only=True, map_location="cpu")
        step = saved["step"]
        print("resumed at step", step, "with weights", saved["model"]["weight"].sum().item(), flush=True)
    shutil.rmtree("cleared", ignore_errors=True)
    os.makedirs("cleared")
    for _ in range(3):
        loss = model(torch.ones(asked.batch_size, 64).to(device)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        os.makedirs("out", exist_ok=True)
        torch.save({"step": step, "model": model.state_dict()}, "out/last.part")
        os.replace("out/last.part", "out/last.pt")
        assert torch.load("out/last.pt", weights_only=True)["step"] == step
        with open("results.csv", "a", newline="") as file:
            csv.writer(file).writerow([step, 0.5])
        pathlib.Path(os.environ["DATA"], "cache.bin").write_bytes(b"x")
        pathlib.Path.home().joinpath(".history").write_text("x")
"""

TRAINER = """
    import argparse
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--resume")
    asked = parser.parse_args()

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return {"input_ids": torch.ones(16, dtype=torch.long), "labels": index % 2}

    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir="out", per_device_train_batch_size=asked.batch_size, max_steps=8, save_steps=1,
            eval_steps=1, eval_strategy="steps", load_best_model_at_end=True, save_total_limit=2,
            push_to_hub=True, hub_model_id="somebody/model", hub_strategy="every_save", report_to=[],
        ),
        train_dataset=Rows(),
        eval_dataset=Rows(),
    )
    trainer.train(resume_from_checkpoint=asked.resume)
    trainer.push_to_hub()
"""

LIGHTNING = """
    import argparse
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--resume")
    asked = parser.parse_args()

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 64)

        def training_step(self, batch, index):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        max_steps=8, accelerator="gpu", devices=1, logger=False, enable_progress_bar=False,
        callbacks=[ModelCheckpoint(dirpath="out", save_last=True, every_n_train_steps=1)],
    )
    loader = torch.utils.data.DataLoader(torch.ones(64, 64), batch_size=asked.batch_size)
    trainer.fit(Module(), loader, ckpt_path=asked.resume)
"""

PROGRAM = shutil.which("brimful") or "brimful"
SCRIPTS = {"plain": PLAIN, "trainer": TRAINER, "lightning": LIGHTNING}

JOB = """
    [job]
    command = ["{python}", "train.py"]
    checkpoints = "out/last.pt"
    resume = ["--resume", "{{checkpoint}}"]

    [knobs]
    allocator = ["", "expandable_segments:True"]
"""


class Hub(http.server.BaseHTTPRequestHandler):
    """Knows nothing, and remembers what it was asked."""

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        self.server.requests.append((self.command, self.path))  # type: ignore[attr-defined]
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def hub() -> Iterator[http.server.ThreadingHTTPServer]:
    """Return a server that remembers its requests."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


class Place:
    """A working directory, a home and a data directory, and their fingerprint."""

    def __init__(self, root: Path, hub: http.server.ThreadingHTTPServer, script: str, phantom: str) -> None:
        self.root = root
        self.hub = hub
        self.work = root / "work"
        for name in ("work/cleared", "work/out", "home", "data"):
            (root / name).mkdir(parents=True)
        (self.work / "train.py").write_text(textwrap.dedent(script), encoding="utf-8")
        job = textwrap.dedent(JOB).format(python=sys.executable)
        (self.work / "brimful.toml").write_text(job, encoding="utf-8")
        (self.work / "cleared/kept.txt").write_text("kept", encoding="utf-8")
        (self.work / "results.csv").write_text("39,0.4\n", encoding="utf-8")
        (root / "data/set.bin").write_bytes(b"samples")
        self.weights = torch.nn.Linear(64, 64)
        torch.save({"step": 40, "model": self.weights.state_dict()}, self.work / "out/last.pt")
        self.environment = {
            **os.environ,
            "HOME": str(root / "home"),
            "DATA": str(root / "data"),
            "XDG_STATE_HOME": str(root / "state"),
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_TOKEN": "hf_" + "a" * 34,
            "LD_PRELOAD": phantom,
        }

    def fingerprint(self) -> dict[str, tuple[int, int, str]]:
        found = {}
        for top in ("work", "home", "data"):
            for path in sorted((self.root / top).rglob("*")):
                facts = path.lstat()
                digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                found[str(path.relative_to(self.root))] = (facts.st_mode, facts.st_mtime_ns, digest)
        return found

    def brimful(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PROGRAM, *words],
            cwd=self.work,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def writing_requests(self) -> list[tuple[str, str]]:
        return [it for it in self.hub.requests if it[0] not in {"GET", "HEAD"}]  # type: ignore[attr-defined]

    def check(self, *words: str) -> str:
        """Run a command that must change nothing."""
        before = self.fingerprint()
        done = self.brimful(*words)
        assert done.returncode == 0, done.stderr
        assert self.fingerprint() == before
        assert self.writing_requests() == []
        return done.stdout


@pytest.mark.parametrize("isolation", ["overlay", "redirect"])
@pytest.mark.parametrize("script", list(SCRIPTS))
def test_rehearsals_leave_no_trace(
    tmp_path: Path, hub: http.server.ThreadingHTTPServer, phantom: str, script: str, isolation: str
) -> None:
    place = Place(tmp_path, hub, SCRIPTS[script], phantom)
    command = ["--", sys.executable, "train.py"]
    with_isolation = ["--isolation", isolation]
    predicted = place.check(
        "predict", "--gpu", "t4,l4", "--with", "eval,save", "--json", *with_isolation, *command
    )
    document = json.loads(predicted)
    assert document["isolation"] == isolation
    assert [gpu["verdict"] for gpu in document["gpus"]] == ["fits", "fits"]
    if script == "trainer":
        assert document["suppressed"]
    planned = json.loads(place.check("plan", "--gpu", "t4", "--json", *with_isolation))
    assert planned["isolation"] == isolation
    place.check("init", "--output", "-", *with_isolation, *command)
    if script == "plain":
        place.check("predict", "--gpu", "none", "--json", *with_isolation, *command)


@pytest.mark.parametrize("isolation", ["overlay", "redirect"])
def test_a_resumed_run_has_the_weights_that_were_there(
    tmp_path: Path, hub: http.server.ThreadingHTTPServer, phantom: str, isolation: str
) -> None:
    place = Place(tmp_path, hub, PLAIN, phantom)
    done = place.brimful("run", "--resume", "--gpu", "t4", "--isolation", isolation)
    assert done.returncode == 0, done.stderr
    weights = place.weights.weight.detach().cpu().sum().item()
    assert f"resumed at step 40 with weights {weights}" in done.stdout
    # The run itself writes for real.
    assert torch.load(place.work / "out/last.pt", weights_only=True, map_location="cpu")["step"] == 43
    assert len((place.work / "results.csv").read_text().splitlines()) == 4


def test_a_file_larger_than_scratch_ends_the_rehearsal_and_is_named(
    tmp_path: Path, hub: http.server.ThreadingHTTPServer, phantom: str
) -> None:
    script = """
        import torch
        with open("large.bin", "r+b") as file:
            file.write(b"changed")
        model = torch.nn.Linear(4, 4).cuda()
    """
    place = Place(tmp_path, hub, script, phantom)
    with (place.work / "large.bin").open("wb") as file:
        for _ in range(64):
            file.write(os.urandom(8 << 20))
    before = place.fingerprint()
    done = place.brimful("predict", "--gpu", "t4", "--scratch", "200MiB", "--", sys.executable, "train.py")
    assert done.returncode == 97, done.stderr
    assert "more than the 200 MiB that scratch may hold" in done.stderr
    assert f"the largest file is `{place.work / 'large.bin'}`" in done.stderr
    assert place.fingerprint() == before
