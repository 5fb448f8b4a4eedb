"""`brimful run` with a job: a training that dies late comes back a rung lower, from its checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from pathlib import Path

TOTAL = 15_634_661_376  # a T4 as torch sees it
Job = Callable[..., tuple[str, list[dict[str, Any]]]]

TRAIN = """
    import argparse, json, pathlib, sys
    import torch

    MIB = 1 << 20

    def piece(mib):
        return torch.empty(int(mib) * MIB, dtype=torch.uint8, device="cuda")

    parser = argparse.ArgumentParser()
    parser.add_argument("--trouble")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--accumulate", type=int)
    parser.add_argument("--eval-batch-size", type=int)
    parser.add_argument("--resume")
    asked = parser.parse_args()

    model = torch.nn.Linear(64, 64, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    done = torch.load(asked.resume, weights_only=True)["step"] if asked.resume else 0
    print("begins after step", done, "with", asked.batch_size, "x", asked.accumulate, flush=True)

    if asked.trouble == "fragmentation":
        # The first epoch leaves segments of 1 GiB behind; then each batch splits one of them.
        held = [piece(1024) for _ in range(14)]
        del held
        held, kept = [], []
        for _ in range(14):
            held.append(piece(800))
            kept.append(piece(200))
        del held

    while done < 12:
        for _ in range(asked.accumulate):
            length = 1
            if done >= 7 and asked.trouble == "longer":
                length = 3  # the longest sample of the epoch
            if done >= 7 and asked.trouble == "fragmentation":
                longest = piece(1024)
                del longest
            activations = piece(asked.batch_size * (2 if asked.trouble == "fragmentation" else 100) * length)
            model(torch.ones(asked.batch_size, 64, device="cuda")).sum().backward()
            del activations
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if done % 5 == 0:
            torch.save({"step": done}, "last.part")
            pathlib.Path("last.part").replace("last.pt")
    if asked.trouble == "evaluation":
        class Wide(torch.nn.Module):
            def forward(self, rows):
                return piece(rows * 100)

        wide = Wide().eval()
        with torch.no_grad():
            for rows in torch.utils.data.DataLoader(torch.arange(256), batch_size=asked.eval_batch_size):
                wide(len(rows))
    print("done", flush=True)
"""

JOB = """
    [job]
    command = ["{python}", "train.py", "--trouble", "{trouble}", "--batch-size", "{{micro_batch}}",
        "--accumulate", "{{accumulation}}", "--eval-batch-size", "{{eval_batch}}"]
    checkpoints = "last.pt"
    resume = ["--resume", "{{checkpoint}}"]

    [keep]
    effective_batch = 64

    [knobs]
    micro_batch = [64, 32, 16]
    eval_batch = [256, 128, 64]
    allocator = ["", "expandable_segments:True"]
"""


@pytest.fixture
def job(tmp_path: Path, phantom: str) -> Job:
    """Return a function that runs a job with one trouble, and tells its attempts."""

    def run(trouble: str, *options: str) -> tuple[str, list[dict[str, Any]]]:
        (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN), encoding="utf-8")
        text = textwrap.dedent(JOB).format(python=sys.executable, trouble=trouble)
        (tmp_path / "brimful.toml").write_text(text, encoding="utf-8")
        environment = {
            **os.environ,
            "LD_PRELOAD": phantom,
            "BRIMFUL_STATE_DIR": str(tmp_path / "state"),
            "BRIMFUL_PHANTOM_DEVICES": f"name=Tesla T4,memory={TOTAL},cc=7.5,multiprocessors=40",
        }
        ended = subprocess.run(
            [shutil.which("brimful") or "brimful", "run", "--gpu", "t4", *options],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        said = ended.stdout + ended.stderr
        assert ended.returncode == 0, said
        record = next((tmp_path / "state/runs").glob("*/record.jsonl"))
        lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        return said, [line for line in lines if line["line"] == "attempt"]

    return run


def test_a_longer_sample_halves_the_micro_batch(job: Job) -> None:
    """It fits at the first step, and not when the longest sample comes."""
    said, attempts = job("longer", "--as-wanted")
    assert [attempt["settings"]["micro_batch"] for attempt in attempts] == [64, 32]
    assert attempts[1]["settings"]["accumulation"] == 2
    assert attempts[1]["resumed_from"].endswith("last.pt")
    assert "begins after step 5 with 32 x 2" in said


def test_fragmentation_changes_the_allocator_first(job: Job) -> None:
    """What is free is in pieces: nothing else has to change."""
    said, attempts = job("fragmentation", "--as-wanted")
    assert [attempt["settings"]["allocator"] for attempt in attempts] == ["", "expandable_segments:True"]
    assert attempts[1]["settings"]["micro_batch"] == 64
    assert "begins after step 5 with 64 x 1" in said


def test_an_evaluation_touches_only_itself(job: Job) -> None:
    """The training's micro-batch stays."""
    _, attempts = job("evaluation", "--as-wanted")
    assert [attempt["settings"]["eval_batch"] for attempt in attempts] == [256, 128]
    assert {attempt["settings"]["micro_batch"] for attempt in attempts} == {64}


def test_a_plan_that_fits_at_the_first_step_comes_back(job: Job) -> None:
    """The rehearsal sees three steps, and the longest sample comes later."""
    said, attempts = job("longer")
    assert "samples/s" in said
    assert [attempt["settings"]["micro_batch"] for attempt in attempts] == [64, 32]


RESUMED = """
    import argparse
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--resume")
    checkpoint = torch.load(parser.parse_args().resume, weights_only=True)
    print("step", checkpoint["step"], "mean", checkpoint["model"]["weight"].mean().item(), flush=True)
"""

RESUMED_JOB = """
    [job]
    command = ["{python}", "train.py"]
    checkpoints = "*.pt"
    resume = ["--resume", "{{checkpoint}}"]
"""


def save(path: Path, step: int, weight: float, age_seconds: float) -> None:
    """Save a model and its optimizer as a training does, last modified some time ago."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(weight)
            for name in ("exp_avg", "exp_avg_sq"):
                optimizer.state[parameter][name].fill_(weight)
    values = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
        "step": step,
    }
    torch.save(values, path)
    modified = time.time() - age_seconds
    os.utime(path, (modified, modified))


def resume(folder: Path, phantom: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the job of a folder from its checkpoints."""
    (folder / "train.py").write_text(textwrap.dedent(RESUMED), encoding="utf-8")
    text = textwrap.dedent(RESUMED_JOB).format(python=sys.executable)
    (folder / "brimful.toml").write_text(text, encoding="utf-8")
    return subprocess.run(
        [shutil.which("brimful") or "brimful", "run", "--as-wanted", "--gpu", "none", "--resume", *options],
        cwd=folder,
        env={**os.environ, "LD_PRELOAD": phantom, "BRIMFUL_STATE_DIR": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_only_a_proven_checkpoint_is_resumed_from(tmp_path: Path, phantom: str) -> None:
    """The step inside wins over the time, and neither zeros nor a file from the future win over anything."""
    save(tmp_path / "further.pt", step=40, weight=0.5, age_seconds=7200)
    save(tmp_path / "newer.pt", step=30, weight=0.25, age_seconds=60)
    save(tmp_path / "zeros.pt", step=99, weight=0.0, age_seconds=30)
    save(tmp_path / "future.pt", step=98, weight=0.75, age_seconds=-7200)
    ended = resume(tmp_path, phantom)
    said = " ".join(ended.stderr.split())
    assert ended.returncode == 0, said
    assert "step 40 mean 0.5" in ended.stdout
    assert "zeros.pt` is not used: its tensors are all zero" in said
    assert "future.pt` is not used: its modification time is 2 hours in the future" in said
    assert "newer, but only at step 30" in said
    forced = resume(tmp_path, phantom, "--force")
    assert forced.returncode == 0, forced.stderr
    assert "step 99 mean 0.0" in forced.stdout


def test_a_job_is_not_started_over_checkpoints_that_are_refused(tmp_path: Path, phantom: str) -> None:
    """It would overwrite them."""
    save(tmp_path / "zeros.pt", step=99, weight=0.0, age_seconds=30)
    whole = (tmp_path / "zeros.pt").read_bytes()
    (tmp_path / "cut.pt").write_bytes(whole[: len(whole) // 2])
    ended = resume(tmp_path, phantom)
    assert ended.returncode == 96, ended.stderr
    assert ended.stdout == ""
    assert "zeros.pt: its tensors are all zero" in ended.stderr
    assert "cut.pt: it is cut short" in ended.stderr
    assert "--force" in ended.stderr
