"""`brimful.plan()` and `brimful plan` on a small job, with real torch."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import time
from typing import TYPE_CHECKING

import pytest

import brimful

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = """
    import argparse
    import torch

    class Numbers(torch.utils.data.Dataset):
        def __init__(self):
            self.rows = torch.rand(40_000, 256).numpy()  # 41 MB

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return torch.from_numpy(self.rows[index])

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=8)
        parser.add_argument("--accumulate", type=int, default=1)
        parser.add_argument("--workers", type=int, default=0)
        asked = parser.parse_args()
        device = "cuda" if torch.cuda.is_available() else "cpu"
        layers = torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1)
        model = torch.nn.Sequential(*layers).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        data = Numbers()
        loader = torch.utils.data.DataLoader(data, asked.batch_size, num_workers=asked.workers)
        for batch in loader:
            model(batch.to(device)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
"""

JOB = """
    [job]
    command = ["{python}", "train.py", "--batch-size", "{{micro_batch}}", "--accumulate", "{{accumulation}}",
        "--workers", "{{workers}}"]

    [keep]
    effective_batch = 64

    [knobs]
    micro_batch = [64, 16]
    workers = [2, 1, 0]
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a job, which is the current one."""
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN), encoding="utf-8")
    text = textwrap.dedent(JOB).format(python=sys.executable)
    (tmp_path / "brimful.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIMFUL_STATE_DIR", str(tmp_path / "state"))
    # The tests' own phantom is not the job's.
    monkeypatch.delenv("BRIMFUL_PHANTOM_DEVICES", raising=False)
    return tmp_path


def printed(*options: str) -> str:
    """Return what `brimful plan` prints for a Colab machine."""
    program = pathlib.Path(sys.executable).with_name("brimful")
    line = [program, "plan", "--as", "colab-t4", *options]
    return subprocess.run(line, capture_output=True, text=True, check=True).stdout


def test_a_plan_fits_and_is_kept(job: Path) -> None:
    """The effective batch stays, every brim holds, and the second answer rehearses nothing."""
    plan = brimful.plan(as_machine="colab-t4")
    assert plan.fits
    assert plan.settings["micro_batch"] * plan.settings["accumulation"] == 64  # type: ignore[operator]
    assert {"host", "shm", "gpu"} <= {brim.name for brim in plan.brims}
    assert all(brim.safe_bytes <= brim.limit_bytes for brim in plan.brims)
    assert plan.footprint.host.likely_bytes > 41_000_000
    assert plan.training_arguments()["per_device_train_batch_size"] == plan.settings["micro_batch"]
    assert "accumulate_grad_batches" in plan.trainer_kwargs()
    assert plan.dataloader_kwargs()["num_workers"] == plan.settings["workers"]
    assert "data:image/svg+xml;base64," in plan._repr_html_()
    began = time.perf_counter()
    again = brimful.plan(as_machine="colab-t4")
    assert time.perf_counter() - began < 2
    assert all(used.reused for used in again.rehearsals)
    assert again.settings == plan.settings
    # What a request asks for is enough for the same settings.
    script = printed("--format", "slurm")
    lines = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)", script, re.MULTILINE))
    assert lines["gpus-per-node"] == "1"
    assert lines["cpus-per-task"] == str(1 + plan.settings["workers"])  # type: ignore[operator]
    assert int(lines["mem"].removesuffix("M")) << 20 > plan.footprint.host.safe_bytes
    memory = lines["mem"].replace("M", "MiB")
    assert json.loads(printed("--memory", memory, "--format", "json"))["workers"] == plan.settings["workers"]
    assert script.splitlines()[-1].endswith(" brimful run")
    # A change of the code is another job.
    (job / "train.py").write_text(textwrap.dedent(TRAIN) + "\n# changed\n", encoding="utf-8")
    assert not any(used.reused for used in brimful.plan(as_machine="colab-t4").rehearsals)


def test_plans_for_several_gpus_are_compared(job: Path) -> None:
    """Each GPU gets its settings; a GPU alone keeps this machine's host memory."""
    compared = brimful.compare(gpu="t4,l4", as_machine="colab-t4", price={"t4": 0.5}, epochs=10)
    assert [one.name for one in compared.candidates] == ["t4", "l4", "colab-t4"]
    for one in compared.candidates:
        assert one.fits
        assert one.settings is not None
        assert one.settings["micro_batch"] * one.settings["accumulation"] == 64  # type: ignore[operator]
        assert one.samples_per_second is not None
        assert one.hours is not None
        # 40,000 samples, ten times.
        seconds = 10 * 40_000 / one.samples_per_second.likely
        assert one.hours.likely * 3600 == pytest.approx(seconds, rel=1e-3)
    assert compared.cheapest == "t4"
    assert "micro_batch" in str(compared)
    assert "micro_batch" in compared._repr_html_()
    page = job / "compare.html"
    compared.report(page)
    assert "micro_batch" in page.read_text(encoding="utf-8")
    # By the command line, the same from the cache; and `plan` for each of two.
    program = pathlib.Path(sys.executable).with_name("brimful")
    done = subprocess.run([program, "compare", "--gpu", "t4,l4"], capture_output=True, text=True, check=True)
    assert "Settings" in done.stdout
    done = subprocess.run([program, "plan", "--gpu", "t4,l4"], capture_output=True, text=True, check=True)
    assert "Tesla T4" in done.stdout
    assert "NVIDIA L4" in done.stdout


def test_on_processors_and_in_too_little(job: Path, phantom: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a card only the host binds; what nothing can fit is told with its bytes."""
    # torch loads its libraries without a card too; the phantom answers for those that are not here.
    monkeypatch.setenv("LD_PRELOAD", phantom)
    program = shutil.which("brimful") or "brimful"
    told = subprocess.run(
        [program, "plan", "--gpu", "none", "--json"], cwd=job, capture_output=True, text=True, check=True
    )
    document = json.loads(told.stdout)
    assert document["footprint"]["gpu"] is None
    small = subprocess.run(
        [program, "plan", "--gpu", "none", "--memory", "150MiB", "--json"],
        cwd=job,
        capture_output=True,
        text=True,
        check=False,
    )
    assert small.returncode == 99
    document = json.loads(small.stdout)
    assert document["fits"] is False
    assert any(reason["missing_bytes"] for reason in document["reasons"])


def test_a_job_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to get one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(brimful.InputError, match="brimful init"):
        brimful.plan()
