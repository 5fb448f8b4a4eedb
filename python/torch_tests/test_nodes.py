"""`brimful run` of a `torchrun` job on two nodes: both restart with the same settings and checkpoint."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

TRAIN = """
    import argparse, json, os, pathlib
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--accumulation", type=int)
    parser.add_argument("--resume")
    asked = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    done = torch.load(asked.resume, weights_only=True)["step"] if asked.resume else 0
    with pathlib.Path(f"ranks-{rank}.jsonl").open("a") as file:
        line = {"micro_batch": asked.micro_batch, "accumulation": asked.accumulation, "from": asked.resume}
        file.write(json.dumps(line | {"node": os.environ["NODE"]}) + "\\n")
    while done < 8:
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == 2
        done += 1
        if done == 6 and rank == 1 and asked.micro_batch > 4:
            activations = torch.empty(asked.micro_batch * 3 << 30, dtype=torch.uint8, device="cuda")
        if done % 4 == 0 and rank == 0:
            torch.save({"step": done}, "last.part")
            pathlib.Path("last.part").replace("last.pt")
    dist.destroy_process_group()
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def job(port: int, node: int, script: str = "train.py") -> str:
    words = [
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=1",
        f"--node-rank={node}",
        "--master-addr=127.0.0.1",
        f"--master-port={port}",
        script,
    ]
    words += ["--micro-batch", "{micro_batch}", "--accumulation", "{accumulation}"]
    return textwrap.dedent(f"""\
        [job]
        command = {json.dumps(words)}
        checkpoints = "last.pt"
        resume = ["--resume", "{{checkpoint}}"]

        [keep]
        effective_batch = 16

        [knobs]
        micro_batch = [8, 4, 2]
    """)


def run(folder: Path, script: str) -> tuple[list[int], list[str]]:
    """Run the script on two nodes: their exit codes, and what each has printed."""
    (folder / "train.py").write_text(textwrap.dedent(script))
    port = free_port()
    started = []
    for node in range(2):
        (folder / f"job{node}.toml").write_text(job(port, node))
        command = ["brimful", "run", "--as-wanted", "--no-status", "--job", f"job{node}.toml"]
        command += ["--state-dir", str(folder / f"state{node}")]
        environment = os.environ | {"NODE": str(node), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        with (folder / f"node{node}.log").open("w") as log:
            started.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))
    codes = [process.wait(timeout=240) for process in started]
    said = [(folder / f"node{node}.log").read_text() for node in range(2)]
    return codes, said


@pytest.mark.usefixtures("children_with_torch")
def test_both_nodes_come_back_with_the_same_settings_from_the_same_checkpoint(tmp_path: Path) -> None:
    codes, said = run(tmp_path, TRAIN)
    assert codes == [0, 0], said
    ranks: list[list[dict[str, Any]]] = [
        [json.loads(line) for line in (tmp_path / f"ranks-{rank}.jsonl").read_text().splitlines()]
        for rank in range(2)
    ]
    expected = [(8, 1, None), (4, 2, str(tmp_path / "last.pt"))]
    for lines in ranks:
        assert [(line["micro_batch"], line["accumulation"], line["from"]) for line in lines] == expected, said
    for text in said:
        assert "attempt 2 on all 2 ranks with accumulation 2, micro_batch 4" in text, text
    # The reason is told by the node that ran out of memory; the other one says that it was not this one.
    assert sum("micro_batch changes from 8 to 4" in " ".join(text.split()) for text in said) == 1, said


@pytest.mark.usefixtures("children_with_torch")
def test_a_job_that_fails_on_one_node_ends_on_both_with_one_reason(tmp_path: Path) -> None:
    failing = TRAIN.replace("activations =", "raise ValueError('no such column')  #")
    codes, said = run(tmp_path, failing)
    assert codes == [1, 1], said
    reasons = {line for text in said for line in text.splitlines() if "not restarting" in line}
    assert len(reasons) == 1, said
    assert "ValueError" in reasons.pop(), said


def footprint(folder: Path, gpus: str, *launcher: str) -> dict[str, Any]:
    """Predict a rank of the documented start of FSDP2."""
    script = Path(__file__).parents[1] / "quick_starts" / "fsdp2.py"
    command = ["brimful", "predict", "--json", "--gpu", gpus, "--", "torchrun", *launcher, str(script)]
    environment = os.environ | {"BRIMFUL_STATE_DIR": str(folder / "state")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_rank_on_several_nodes_is_predicted_without_the_other_nodes(tmp_path: Path) -> None:
    # Nobody listens there: the rehearsal must not look for the other nodes.
    of_nodes = ["--nnodes=4", "--node-rank=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:9"]
    several = footprint(tmp_path, "l4", *of_nodes, "--nproc-per-node=1")
    together = footprint(tmp_path, "4x l4", "--nproc-per-node=4")
    assert several["world_size"] == together["world_size"] == 4
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        assert several["gpus"][0][name] == together["gpus"][0][name], name
