"""`brimful verify` with a second phantom as the real GPU, which has another capacity and a context."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

MIB = 1 << 20
CONTEXT = 333 * MIB
# A T4 with ECC off: as torch sees it, NVML counts more.
MEMORY = 15_100 * MIB

TRAIN = """
    import os, sys
    import torch

    def main():
        model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(100_000):
            loss = model(torch.ones(256, 1024, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            torch.cuda.reset_peak_memory_stats()
            with open("losses.txt", "a") as file:
                file.write("a step\\n")
            if CONDITION:
                torch.empty(1 << 35, dtype=torch.uint8, device="cuda")
        torch.save(model.state_dict(), "last.pt")

    main()
"""

HOLDS = """
    import time, torch
    kept = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """Write a script and what it would overwrite."""
    directory = tmp_path / "secret-project"
    directory.mkdir()
    (directory / "train.py").write_text(textwrap.dedent(TRAIN).replace("CONDITION", "False"))
    (directory / "losses.txt").write_text("of the last run\n")
    return directory


@pytest.fixture
def environment(tmp_path: Path, phantom: str) -> dict[str, str]:
    """Let the second phantom be the GPU of every process."""
    shared = tmp_path / "shared"
    shared.mkdir()
    device = f"name=Tesla T4,memory={MEMORY},context={CONTEXT},cc=7.5,multiprocessors=40"
    return {
        **os.environ,
        "LD_PRELOAD": phantom,
        "BRIMFUL_PHANTOM_DEVICES": device,
        "BRIMFUL_PHANTOM_SHARED": str(shared),
        "BRIMFUL_STATE_DIR": str(tmp_path / "state"),
    }


def brimful(
    *arguments: str, cwd: Path, environment: dict[str, str], script: str = "train.py"
) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("brimful"))
    return subprocess.run(
        [program, *arguments, "--", sys.executable, script],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def gpu_measurements(environment: dict[str, str]) -> list[dict]:
    path = Path(environment["BRIMFUL_STATE_DIR"], "history", "gpus.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("isolation", ["overlay", "redirect"])
def test_a_prediction_is_compared_and_the_files_stay_as_they_are(
    train: Path, environment: dict[str, str], isolation: str
) -> None:
    done = brimful("verify", "--isolation", isolation, cwd=train, environment=environment)
    if "is not available" in done.stderr:
        pytest.skip(f"{isolation} is not available here")
    assert done.returncode == 0, done.stderr
    assert "running the command on GPU 0 (Tesla T4) for 10 steps" in done.stderr
    assert "Nothing was sent" in done.stderr
    for row in ("allocated", "reserved", "context", "total", "steps/s"):
        assert f"  {row} " in done.stdout, done.stdout
    document = json.loads((train / "brimful-verify.json").read_text())
    assert document["outcome"] == "finished"
    assert document["isolation"] == isolation
    assert (document["steps"], document["timed_steps"], document["world_size"]) == (10, 7, 1)
    # The same code decides on both: only what lies outside PyTorch can differ.
    assert document["allocated"]["error"] == 0.0
    assert document["reserved"]["error"] == 0.0
    assert document["context"]["measured_bytes"] == CONTEXT
    total = document["reserved"]["measured_bytes"] + CONTEXT
    assert document["total"]["measured_bytes"] == total
    assert document["gpu"]["model"] == "t4"
    assert document["gpu"]["used_before_bytes"] == 0
    assert document["gpu"]["used_after_bytes"] == 0
    assert document["steps_per_second"]["measured"] > 0
    # The script's writes are gone, and the file says nothing about its user.
    assert (train / "losses.txt").read_text() == "of the last run\n"
    assert sorted(path.name for path in train.iterdir()) == ["brimful-verify.json", "losses.txt", "train.py"]
    text = json.dumps(document)
    for private in ("secret-project", "train", sys.executable, getpass.getuser(), socket.gethostname()):
        assert private not in text, private
    measured = gpu_measurements(environment)
    assert [run["context_bytes"] for run in measured] == [CONTEXT]


def test_the_next_predictions_use_the_measured_context(train: Path, environment: dict[str, str]) -> None:
    done = brimful("verify", "--json", cwd=train, environment=environment)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    predict = ("predict", "--gpu", "t4,l4", "--steps", "10", "--beside-driver", "--json")
    t4, l4 = json.loads(brimful(*predict, cwd=train, environment=environment).stdout)["gpus"]
    assert t4["measured_context"]["bytes"] == CONTEXT
    assert t4["measured_context"]["same_job"] is True
    assert l4["measured_context"] is None
    calculated = document["context"]["predicted_bytes"]
    assert t4["device_bytes"]["likely"] == document["total"]["predicted_bytes"] - calculated + CONTEXT
    compare = ("compare", "--gpu", "t4", "--beside-driver")
    page = brimful(*compare, cwd=train, environment=environment).stdout
    assert "t4: the CUDA context is 333 MiB, measured by the last run of this job" in page


def test_a_run_stores_what_it_measured(train: Path, environment: dict[str, str]) -> None:
    script = textwrap.dedent(TRAIN).replace("range(100_000)", "range(10)").replace("CONDITION", "False")
    # The driver is asked once a second.
    script = script.replace('torch.save(model.state_dict(), "last.pt")', "import time; time.sleep(5)")
    (train / "short.py").write_text(script)
    done = brimful("run", cwd=train, environment=environment, script="short.py")
    assert done.returncode == 0, done.stderr
    (measured,) = gpu_measurements(environment)
    assert measured["context_bytes"] == CONTEXT
    assert measured["gpu"] == "Tesla T4"
    assert measured["total_bytes"] == MEMORY
    assert measured["used_before_bytes"] == 0
    assert measured["torch"].startswith("2.")
    assert measured["driver"]


def test_a_gpu_that_others_use_is_refused(train: Path, environment: dict[str, str]) -> None:
    holds = [sys.executable, "-c", textwrap.dedent(HOLDS)]
    with subprocess.Popen(holds, env=environment, stdout=subprocess.PIPE, text=True) as neighbor:
        try:
            assert neighbor.stdout is not None
            assert neighbor.stdout.readline() == "ready\n"
            began = time.monotonic()
            done = brimful("verify", cwd=train, environment=environment)
            assert done.returncode == 98, done.stderr
            assert "GPU 0 (Tesla T4) is in use" in done.stderr
            assert f"(process {neighbor.pid}): 4.33 GiB" in done.stderr
            assert "hint: wait until they have ended" in done.stderr
            assert time.monotonic() - began < 10, "before the rehearsal"
        finally:
            neighbor.kill()
    assert not (train / "brimful-verify.json").exists()


def test_a_run_that_does_not_fit_beside_others_is_refused(train: Path, environment: dict[str, str]) -> None:
    held = MEMORY - 256 * MIB
    environment["BRIMFUL_PHANTOM_DEVICES"] += f",held={held}"
    done = brimful("verify", cwd=train, environment=environment)
    assert done.returncode == 98, done.stderr
    assert "the command is predicted to need" in done.stderr


def test_memory_that_runs_out_on_the_gpu_is_a_result(train: Path, environment: dict[str, str]) -> None:
    script = textwrap.dedent(TRAIN).replace("CONDITION", 'step == 4 and "BRIMFUL_VERIFY" in os.environ')
    (train / "train.py").write_text(script)
    done = brimful("verify", cwd=train, environment=environment)
    assert done.returncode == 99, done.stderr
    assert "memory ran out after 5 of 10 steps" in done.stdout.replace("\n  ", " ")
    document = json.loads((train / "brimful-verify.json").read_text())
    assert document["outcome"] == "out_of_memory"
    assert document["total"]["measured_bytes"] is None
    assert gpu_measurements(environment) == []


def test_a_script_that_fails_on_the_gpu_is_reported(train: Path, environment: dict[str, str]) -> None:
    script = textwrap.dedent(TRAIN).replace(
        "CONDITION", '"BRIMFUL_VERIFY" in os.environ and sys.exit("no luck")'
    )
    (train / "train.py").write_text(script)
    done = brimful("verify", cwd=train, environment=environment)
    assert done.returncode == 96, done.stderr
    assert "no luck" in done.stderr
    assert "the command ended with exit code 1 on the GPU" in done.stderr


def test_a_file_of_the_user_is_not_replaced(train: Path, environment: dict[str, str]) -> None:
    (train / "brimful-verify.json").write_text('{"mine": true}')
    done = brimful("verify", cwd=train, environment=environment)
    assert done.returncode == 96
    assert "was not written by `brimful verify`" in done.stderr
    assert (train / "brimful-verify.json").read_text() == '{"mine": true}'
