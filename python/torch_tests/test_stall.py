"""A rehearsal whose script waits for something that never comes ends early; slow work goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

WAITS = """
    import os, time, torch

    def wait_for_file(path):
        while not os.path.exists(path):
            time.sleep(0.1)

    torch.zeros(8, device="cuda")
    wait_for_file("/nowhere/ready")
"""

TRAINS = """
    import threading, time, torch
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step():
        model(torch.ones(8, 256, device="cuda")).sum().backward()
        optimizer.step()
"""

WAITS_AFTER_A_STEP = f"""{TRAINS}
    step()
    threading.Event().wait()
"""

# Longer than a script may wait, at a few percent of a CPU.
WORKS_SLOWLY = f"""{TRAINS}
    end = time.monotonic() + 70
    while time.monotonic() < end:
        sum(range(1_000_000))
        time.sleep(0.2)
    while True:
        step()
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    """Return how each script's rehearsal ended. They wait at the same time."""
    directory = tmp_path_factory.mktemp("stall")
    program = str(Path(sys.executable).with_name("brimful"))
    started = {}
    scripts = {"waits": WAITS, "waits_after_a_step": WAITS_AFTER_A_STEP, "works_slowly": WORKS_SLOWLY}
    for name, text in scripts.items():
        script = directory / f"{name}.py"
        script.write_text(textwrap.dedent(text))
        asked = [program, "predict", "--gpu", "t4", "--time-limit", "280"]
        command = [*asked, "--", sys.executable, str(script)]
        started[name] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = {}
    for name, process in started.items():
        output, errors = process.communicate(timeout=300)
        found[name] = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    return found


def test_a_script_that_waits_is_ended_with_its_line(
    ended: dict[str, subprocess.CompletedProcess[str]],
) -> None:
    done = ended["waits"]
    assert done.returncode == 96, done.stderr
    assert "waited at waits.py:6 in wait_for_file for 60 seconds" in done.stderr
    assert "0 of 3 steps" in done.stderr
    assert "BRIMFUL_REHEARSAL" in done.stderr


def test_a_script_that_waits_after_a_step_is_ended_too(
    ended: dict[str, subprocess.CompletedProcess[str]],
) -> None:
    done = ended["waits_after_a_step"]
    assert done.returncode == 96, done.stderr
    assert "1 of 3 steps" in done.stderr
    assert "waits_after_a_step.py:10 in <module>" in done.stderr


def test_slow_work_is_no_wait(ended: dict[str, subprocess.CompletedProcess[str]]) -> None:
    done = ended["works_slowly"]
    assert done.returncode == 0, done.stderr
