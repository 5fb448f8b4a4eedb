"""A crash in native code is reported as that, and hides no other answer."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

TRAINS = """
    import ctypes, torch

    def crash():
        ctypes.string_at(0)

    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step():
        model(torch.ones(8, 256, device="cuda")).sum().backward()
        optimizer.step()
"""

# 18 GiB: too much for a T4, little for an L4.
RUNS_OUT_AND_CRASHES = f"""{TRAINS}
    activations = torch.empty(18 << 30, dtype=torch.uint8, device="cuda")
    if torch.cuda.get_device_name().startswith("Tesla"):
        crash()
    while True:
        step()
"""

CRASHES_AFTER_A_STEP = f"""{TRAINS}
    step()
    crash()
"""


def predict(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = directory / "train.py"
    script.write_text(textwrap.dedent(text))
    program = str(Path(sys.executable).with_name("brimful"))
    command = [program, "predict", *arguments, "--", sys.executable, str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_a_gpu_that_is_too_small_is_said_to_be_although_the_script_crashes_with_more_room(
    tmp_path: Path,
) -> None:
    done = predict(tmp_path, RUNS_OUT_AND_CRASHES, "--gpu", "t4,l4", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    # The whole run comes first: it is shown in detail.
    l4, t4 = document["gpus"]
    assert (l4["name"], l4["verdict"], l4["is_lower_bound"]) == ("NVIDIA L4", "fits", False)
    assert (t4["name"], t4["verdict"], t4["is_lower_bound"]) == ("Tesla T4", "does_not_fit", True)
    assert t4["device_bytes"]["likely"] > 18 << 30
    assert document["caveats"] == []


def test_a_crash_is_reported_with_its_signal_and_its_line(tmp_path: Path) -> None:
    done = predict(tmp_path, CRASHES_AFTER_A_STEP, "--gpu", "t4")
    assert done.returncode == 96
    message = " ".join(done.stderr.split())
    assert "the script ended with signal 11 (SIGSEGV), a crash in native code" in message
    assert "in string_at, called at train.py:5 in crash), after 1 of 3 optimizer steps" in message
    assert "Extension modules" not in message
