"""The speed of a training before its first run: what a captured step holds, and what is made of it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

WITH_LOADER = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.checkpoint import checkpoint
    data = TensorDataset(torch.randn(512, 256), torch.zeros(512, dtype=torch.int64))
    loader = DataLoader(data, batch_size=32)
    model = nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Linear(4096, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(100):
        for at, (x, y) in enumerate(loader):
            with torch.autocast("cuda", dtype=torch.float16):
                output = FORWARD
                loss = nn.functional.cross_entropy(output, y.cuda())
            (loss / ACCUMULATION).backward()
            if (at + 1) % ACCUMULATION == 0:
                optimizer.step()
                optimizer.zero_grad()
"""
PLAIN = "model(x.cuda())"
CHECKPOINTED = "checkpoint(model, x.cuda(), use_reentrant=False)"


def brimful(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("brimful")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def predict(tmp_path: Path):  # noqa: ANN201
    def of(text: str, *arguments: str, command: str = "predict") -> dict:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        done = brimful(command, "--json", *arguments, "--", sys.executable, str(path))
        assert done.returncode in {0, 99}, done.stderr
        return json.loads(done.stdout)

    return of


def with_loader(forward: str = PLAIN, accumulation: int = 1) -> str:
    return WITH_LOADER.replace("FORWARD", forward).replace("ACCUMULATION", str(accumulation))


def test_every_gpu_has_a_range_with_its_parts(predict) -> None:  # noqa: ANN001
    gpus = predict(with_loader(), "--gpu", "t4,a100-40gb")["gpus"]
    slow, fast = (gpu["speed"] for gpu in gpus)
    for speed in (slow, fast):
        steps, samples = speed["steps_per_second"], speed["samples_per_second"]
        assert 0 < steps["low"] < steps["likely"] < steps["high"]
        assert samples["likely"] == pytest.approx(32 * steps["likely"], rel=1e-3)
        assert speed["epoch_seconds"]["likely"] == pytest.approx(512 / samples["likely"], rel=1e-3)
        assert speed["basis"] == "model"
        parts = speed["seconds_by_part"]
        assert parts["matmul"] > 0
        assert parts["optimizer"] > 0
        assert parts["launches"] > 0
    assert fast["seconds_by_part"]["matmul"] < slow["seconds_by_part"]["matmul"]


def test_checkpointing_and_accumulation_are_captured(predict) -> None:  # noqa: ANN001
    def matmul(text: str) -> float:
        return predict(text, "--gpu", "t4")["gpus"][0]["speed"]["seconds_by_part"]["matmul"]

    plain = matmul(with_loader())
    # Two products of the forward pass once more, beside those and the three of the backward pass.
    assert 1.15 < matmul(with_loader(CHECKPOINTED)) / plain < 1.6
    assert 1.8 < matmul(with_loader(accumulation=2)) / plain < 2.2
    speed = predict(with_loader(accumulation=2), "--gpu", "t4")["gpus"][0]["speed"]
    ratio = speed["samples_per_second"]["likely"] / speed["steps_per_second"]["likely"]
    assert ratio == pytest.approx(64, rel=1e-3)


def test_memory_is_the_same_with_and_without_the_captured_step(predict, monkeypatch) -> None:  # noqa: ANN001
    def peaks(document: dict) -> list[int]:
        gpu = document["gpus"][0]
        return [gpu["peak_allocated_bytes"], gpu["peak_reserved_bytes"], document["steps"]]

    captured = predict(with_loader(), "--gpu", "t4")
    monkeypatch.setenv("BRIMFUL_REHEARSAL_WITHOUT_SPEED", "1")
    alone = predict(with_loader(), "--gpu", "t4")
    assert peaks(captured) == peaks(alone)
    assert captured["gpus"][0]["speed"] is not None
    assert alone["gpus"][0]["speed"] is None


@pytest.mark.parametrize(
    "ending",
    [
        "        if step == 2: break",
        "        if step == 2: raise RuntimeError('after the third step')",
        "        if step == 2: torch.save(model.state_dict(), 'model.pt'); raise SystemExit(3)",
    ],
)
def test_a_script_that_ends_before_one_more_step_has_its_memory_and_no_speed(predict, ending: str) -> None:  # noqa: ANN001
    text = textwrap.dedent("""
        import torch
        model = torch.nn.Linear(1024, 1024).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(100):
            model(torch.ones(64, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """)
    document = predict(text + ending.removeprefix("    ") + "\n", "--gpu", "t4")
    assert document["gpus"][0]["peak_allocated_bytes"] > 0
    assert document["gpus"][0]["speed"] is None


def test_compiled_code_is_said_to_be_captured_as_it_is(predict) -> None:  # noqa: ANN001
    text = """
        import torch
        layers = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU()).cuda()
        model = torch.compile(layers, backend="aot_eager")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(50):
            model(torch.ones(256, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    speed = predict(text, "--gpu", "a100-40gb")["gpus"][0]["speed"]
    assert any("torch.compile" in note for note in speed["notes"])


def test_gpus_and_machines_are_compared_by_time_and_cost(predict, tmp_path: Path) -> None:  # noqa: ANN001
    report = tmp_path / "compare.html"
    arguments = ["--gpu", "l4,h100", "--as", "colab-t4", "--price", "l4=0.5,h100=4,colab-t4=0"]
    document = predict(
        with_loader(), *arguments, "--epochs", "1000", "--report", str(report), command="compare"
    )
    names = [found["name"] for found in document["candidates"]]
    assert names == ["l4", "h100", "colab-t4"]
    assert document["length"] == {"epochs": 1000.0, "steps": 16000.0, "missing": None}
    by_name = dict(zip(names, document["candidates"], strict=True))
    for found in by_name.values():
        assert found["fits"]
        assert found["hours"]["low"] < found["hours"]["likely"] < found["hours"]["high"]
    hours = by_name["l4"]["hours"]["likely"]
    assert by_name["l4"]["cost"]["likely"] == pytest.approx(0.5 * hours, rel=1e-2)
    assert document["cheapest"] == "colab-t4"
    assert by_name["colab-t4"]["host_limit_bytes"] > 0
    assert "Time against cost" in report.read_text()


def test_python_compares_a_function_and_refuses_wrong_input() -> None:
    import brimful as package

    def train() -> None:
        import torch

        model = torch.nn.Linear(512, 512).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            model(torch.randn(64, 512, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    found = package.compare(train, gpu=["t4", "h100"], price={"t4": 0.35, "h100": 3}, total_steps=1000)
    assert [one.name for one in found.candidates] == ["t4", "h100"]
    assert all(one.fits and one.hours and one.cost for one in found.candidates)
    assert "train()" in str(found)
    assert "Comparison(t4 fits" in repr(found)
    wrong = (
        {"gpu": "abacus"},
        {"gpu": ","},
        {"epochs": 0},
        {"epochs": 1, "total_steps": 1},
        {"total_steps": 0.5},
        {"total_steps": 10**400},
        {"price": {"t4": "cheap"}},
        {"job": "brimful.toml"},
    )
    for arguments in wrong:
        with pytest.raises(package.InputError):
            package.compare(["python", "train.py"], **arguments)
    with pytest.raises(package.InputError):
        package.compare([])


def test_a_price_for_nobody_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    done = brimful("compare", "--gpu", "l4", "--price", "a100=3", "--", sys.executable, str(script))
    assert done.returncode == 96
    assert "a100" in done.stderr
