"""`brimful predict` from outside, on small scripts as people write them."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PLAIN = """
    import torch
    from torch import nn
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(100):
        x = torch.randn(BATCH, 1024, device="cuda")
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
"""


def brimful(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("brimful")
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=300, env=env
    )


@pytest.fixture
def script(tmp_path: Path) -> object:
    def write(text: str, batch: int = 4096) -> str:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text).replace("BATCH", str(batch)))
        return str(path)

    return write


def predict(script_path: str, *arguments: str) -> dict:
    done = brimful("predict", "--json", *arguments, "--", sys.executable, script_path)
    assert done.returncode in {0, 99}, done.stderr
    return json.loads(done.stdout)


def terms(document: dict) -> dict[str, int]:
    return {term["name"]: term["likely_bytes"] for term in document["terms"]}


def in_phase(document: dict, term: str, phase: str) -> int:
    by_phase = next(found for found in document["terms"] if found["name"] == term)["by_phase"]
    return next(found["bytes"] for found in by_phase if found["phase"] == phase)


def test_the_figures_are_those_of_torch_itself(script, tmp_path: Path) -> None:  # noqa: ANN001
    log = tmp_path / "log"
    document = predict(script(PLAIN), "--gpu", "t4", "--output", str(log))
    *_, last = [line.split() for line in log.read_text().splitlines() if line.startswith("step")]
    # The script prints after each step; the rehearsal ends within one more, whose operators it captures.
    assert last[1] == "2"
    assert document["peak"]["allocated_bytes"] == int(last[2])
    assert document["peak"]["reserved_bytes"] == int(last[3])
    assert document["steps"] == 3


def test_the_budget_is_what_arithmetic_says(script) -> None:  # noqa: ANN001
    document = predict(script(PLAIN), "--gpu", "t4,l4")
    parameters = (1024 * 4096 + 4096 + 4096 * 1024 + 1024) * 4
    found = terms(document)
    assert found["weights"] == parameters
    assert found["optimizer_state"] == pytest.approx(2 * parameters, rel=0.001)
    assert in_phase(document, "gradients", "optimizer") == parameters
    # The forward pass is fullest with the hidden layer before the ReLU (on its way) and after it (kept).
    assert in_phase(document, "activations", "forward") == pytest.approx(4096 * 4096 * 4, rel=0.001)
    assert in_phase(document, "temporaries", "forward") == pytest.approx(4096 * 4096 * 4, rel=0.001)
    assert sum(found.values()) == document["peak"]["device_bytes"]["likely"]
    assert [gpu["name"] for gpu in document["gpus"]] == ["Tesla T4", "NVIDIA L4"]
    assert all(gpu["fits"] for gpu in document["gpus"])


def test_what_does_not_fit_is_told_with_what_is_missing(script) -> None:  # noqa: ANN001
    path = script(PLAIN, batch=400_000)
    done = brimful("predict", "--json", "--gpu", "t4,a100-80", "--", sys.executable, path)
    assert done.returncode == 0, "it fits one of them"
    t4, a100 = json.loads(done.stdout)["gpus"]
    assert not t4["fits"]
    assert t4["verdict"] == "does_not_fit"
    assert t4["headroom_bytes"] < -1 << 30
    assert a100["fits"]
    done = brimful("predict", "--gpu", "t4", "--", sys.executable, path)
    assert done.returncode == 99
    assert "does not fit" in done.stdout


def test_accumulation_checkpointing_and_masks(script) -> None:  # noqa: ANN001
    text = """
        import torch
        from torch.utils.checkpoint import checkpoint
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(100):
            for part in range(4):
                x = torch.randn(256, 1024, device="cuda")
                y = checkpoint(model, x, use_reentrant=False)
                y[y > 0].sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    document = predict(script(text), "--gpu", "t4")
    assert "value_dependent_shape" in [caveat["id"] for caveat in document["caveats"]]
    assert terms(document)["weights"] == (1024 * 1024 + 1024) * 4


def test_a_rehearsal_goes_on_to_evaluation_and_a_checkpoint(script, tmp_path: Path) -> None:  # noqa: ANN001
    text = f"""
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.randn(4096, 64))
        model = torch.nn.Linear(64, 64).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(10):
            model.train()
            for (x,) in DataLoader(data, batch_size=8):
                model(x.cuda()).sum().backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for (x,) in DataLoader(data, batch_size=512):
                    model(x.cuda())
            torch.save(model.state_dict(), {str(tmp_path / "last.pt")!r})
    """
    document = predict(script(text), "--gpu", "t4", "--with", "eval,save")
    assert {"evaluation", "forward", "backward", "optimizer"} <= {
        phase["phase"] for phase in document["phases"]
    }


def test_the_trace_can_be_replayed(script, tmp_path: Path) -> None:  # noqa: ANN001
    trace = tmp_path / "run.brimtrace"
    document = predict(script(PLAIN), "--gpu", "t4", "--save-trace", str(trace))
    arguments = [
        "--capacity",
        "16GiB",
        "--capacity",
        "300MiB",
        "--alloc-conf",
        "",
        "--alloc-conf",
        "expandable_segments:True",
    ]
    done = brimful("replay", str(trace), "--json", *arguments)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [result["oom"] for result in results] == [False, False, True, True]
    assert results[0]["peak_allocated_bytes"] == document["peak"]["allocated_bytes"]
    assert results[0]["peak_reserved_bytes"] == document["peak"]["reserved_bytes"]


def test_a_snapshot_of_torch_can_be_replayed(script, tmp_path: Path) -> None:  # noqa: ANN001
    snapshot = tmp_path / "snapshot.pickle"
    text = (
        PLAIN.replace("import torch\n", "import torch\n    torch.cuda.memory._record_memory_history()\n")
        + f"""
        if step == 1:
            torch.cuda.memory._dump_snapshot({str(snapshot)!r})
    """
    )
    # The snapshot is to be there afterwards.
    predict(script(text), "--gpu", "t4", "--allow-writes")
    done = brimful("replay", str(snapshot), "--torch", "2.13.0", "--json", "--capacity", "8GiB")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["agreement"]["same_address"] == document["agreement"]["allocations"] > 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch\nraise RuntimeError('no data here')", "no data here"),
        ("print('nothing')", "before brimful saw it import torch"),
        ("import torch\nprint(torch.ones(3).sum())", "without using the GPU"),
    ],
)
def test_a_script_that_brings_no_step_is_told_apart(script, text: str, expected: str) -> None:  # noqa: ANN001
    done = brimful("predict", "--gpu", "t4", "--", sys.executable, script(text))
    assert done.returncode == 96
    assert expected in done.stderr
    assert "hint:" in done.stderr


def test_the_users_sitecustomize_still_runs(script, tmp_path: Path) -> None:  # noqa: ANN001
    import os

    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import os; os.environ['SEEN_BY_USER'] = '1'")
    text = "import os\nassert os.environ['SEEN_BY_USER'] == '1'\n" + textwrap.dedent(PLAIN)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    done = brimful("predict", "--gpu", "t4", "--", sys.executable, script(text), env=env)
    assert done.returncode == 0, done.stderr


def test_a_function_is_rehearsed_in_a_process_of_its_own(script) -> None:  # noqa: ANN001
    text = """
        import brimful

        def train():
            import torch
            model = torch.nn.Linear(512, 512).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            while True:
                model(torch.randn(64, 512, device="cuda")).sum().backward()
                optimizer.step()

        if __name__ == "__main__":
            footprint = brimful.predict(train, gpu="t4", steps=2)
            assert footprint.fits
            assert footprint.steps == 2
            assert "Tesla T4" in footprint._repr_html_()
            print(repr(footprint))
    """
    done = subprocess.run(
        [sys.executable, script(text)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Footprint(")


LOADED = """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self):
            self.rows = [[row * 1000 + place for place in range(100)] for row in range(20_000)]

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return torch.tensor(self.rows[index], dtype=torch.float32)

    if __name__ == "__main__":
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = torch.nn.Linear(100, 10).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(Rows(), batch_size=BATCH, num_workers=1, multiprocessing_context="fork")
        for batch in loader:
            model(batch.to(device)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.parametrize("gpu", ["none", "t4"])
def test_the_host_is_measured(script, gpu: str, phantom: str, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN001
    if gpu == "none":
        # torch loads its libraries without a card too; the phantom answers for those that are not here.
        monkeypatch.setenv("LD_PRELOAD", phantom)
    document = predict(script(LOADED, batch=32), "--gpu", gpu)
    assert (document["peak"] is None) == (gpu == "none")
    host = document["host"]
    assert (host["workers"], host["micro_batch"], host["start_method"]) == (1, 32, "fork")
    found = {term["name"]: term for term in host["terms"]}
    # Two million numbers of 32 bytes; their tables stay shared.
    assert found["worker_copies"]["safe_bytes"] == pytest.approx(64e6, rel=0.1)
    assert "reference counts" in found["worker_copies"]["reason"]
    assert found["dataset"]["likely_bytes"] == pytest.approx(82e6, rel=0.1)
    need = {(row["start_method"], row["workers"]): row["bytes"]["likely"] for row in host["by_workers"]}
    assert need["fork", 0] < need["fork", 1] < need["fork", 4] < need["spawn", 4]
    assert host["shm_bytes"]["likely"] == 3 * 16384


def test_a_script_without_a_loader_has_a_host_too(script) -> None:  # noqa: ANN001
    host = predict(script(PLAIN), "--gpu", "t4")["host"]
    assert host["workers"] == 0
    assert host["bytes"]["likely"] > 100e6
