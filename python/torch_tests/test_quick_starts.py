"""Quick-starts of popular stacks, as people write them: one for each mechanism that a rehearsal must follow.

The scripts know nothing of brimful. What others do is in docs/reference/works-with.md, which
`benches/works_with/works_with.py` makes from all of them.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

QUICK_STARTS = Path(__file__).parents[1] / "quick_starts"
LOWER_BOUND = Path(__file__).parents[2] / "benches/works_with/lower_bound"
BIN = Path(sys.executable).parent

# Commands, and caveats that are expected beside those that any script may have.
SCRIPTS = {
    "transformers before torch, Trainer": ("python hf_trainer.py --output_dir out", set()),
    "generate()": ("python generate.py", {"full_generation"}),
    "Lightning": ("python lightning_fit.py", set()),
    "accelerate launch": ("accelerate launch accelerate_loop.py", set()),
    "torchrun, FSDP2": ("torchrun --nproc_per_node 2 fsdp2.py", set()),
    "torchrun, pipeline": ("torchrun --nproc_per_node 2 pipeline.py", set()),
    "detection": ("python detection.py", {"value_dependent_shape"}),
    "CTC": ("python ctc.py", set()),
    "two optimizers": ("python gan.py", set()),
    "shapes from values": (
        "python value_shapes.py",
        {"value_dependent_shape", "assumed_values", "value_read"},
    ),
    "policy gradient": ("python ppo.py", set()),
    "checks of the loss": ("python checked_loss.py", set()),
}
ANY = {
    "autotuned_kernels",
    "cudnn_workspaces_unknown",
    "guessed_size",
    "nccl_estimated",
    "one_step",
    "short_evaluation",
}


# Started with something that prints what the tensors take at least.
WITH_LOWER_BOUND = ["generate()", "Lightning", "two optimizers", "CTC"]


@functools.cache
def rehearse(name: str) -> tuple[dict, str]:
    """Return the document, and what the script printed."""
    environment = {"PYTHONPATH": str(LOWER_BOUND)} if name in WITH_LOWER_BOUND else {}
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "output.txt"
        arguments = [BIN / "brimful", "predict", "--gpu", "l4", "--json", "--output", output, "--"]
        done = subprocess.run(
            [*arguments, *SCRIPTS[name][0].split()],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            cwd=QUICK_STARTS,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1", **environment},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), output.read_text(errors="replace")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_quick_start_gives_an_answer(name: str) -> None:
    document, _ = rehearse(name)
    caveats = {caveat["id"] for caveat in document["caveats"]}
    assert document["steps"] >= 1
    assert caveats - ANY == SCRIPTS[name][1], document["caveats"]


@pytest.mark.parametrize("name", WITH_LOWER_BOUND)
def test_the_figure_is_not_below_what_the_tensors_take(name: str) -> None:
    document, output = rehearse(name)
    bounds = [int(found) for found in re.findall(r"lower bound: (\d+)", output)]
    assert document["peak"]["allocated_bytes"] >= max(bounds) > 0
