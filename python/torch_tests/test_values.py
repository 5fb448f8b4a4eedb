"""Values in a rehearsal: true where they come from the host, plausible where they come from the model."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / "crates/brimful-rehearse/src/hook"
PROGRAMS = 150

TRAINING = """
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        loss = model(torch.ones(4, 8, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""

FROM_HOST = """
    import torch
    from torch.nn import functional
    host = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    x = host.cuda()
    batch = {name: value.to("cuda", non_blocking=True) for name, value in {"x": host, "y": host}.items()}
    assert x.tolist() == host.tolist() == batch["x"].tolist() == batch["y"].cpu().numpy().tolist()
    assert torch.unique(x).tolist() == torch.unique(host).tolist()
    assert torch.bincount(x).tolist() == torch.bincount(host).tolist()
    assert functional.one_hot(x).shape == (8, 10)
    assert x[x > 3].tolist() == [4, 5, 9, 6]
    assert x.repeat_interleave(x).shape == (31,)
    assert torch.zeros(int(x.max()), 4, device="cuda").shape == (9, 4)
    assert [part.shape[0] for part in torch.arange(31, device="cuda").split(x.tolist())] == host.tolist()
    lengths = (torch.nn.utils.rnn.pad_sequence([torch.ones(int(n)) for n in host]).cuda() > 0).sum(0)
    assert lengths.tolist() == host.tolist()
    boxes = torch.tensor([[1.0, 2.0, 3.0, 5.0]]).cuda()
    assert ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).tolist() == [6.0]
    counts = torch.zeros(10, dtype=torch.long, device="cuda")
    counts.scatter_add_(0, x, torch.ones_like(x))
    assert counts.tolist() == torch.bincount(host).tolist()
    sparse = torch.sparse_coo_tensor(torch.stack([x, x]), torch.ones(8, device="cuda"), (10, 10))
    assert sparse.coalesce().values().shape == (7,)
    functional.ctc_loss(
        torch.randn(50, 4, 20, device="cuda").log_softmax(2),
        torch.ones(4, 10, dtype=torch.long).cuda(),
        torch.full((4,), 50).cuda(),
        torch.tensor([10, 9, 8, 7]).cuda(),
    )
"""

NUMBERS = """
    import torch
    frequencies = 1.0 / (10000.0 ** (torch.arange(0, 64, 2, device="cuda").float() / 64))
    with torch.device("cuda"):
        frequencies = 1.0 / (10000.0 ** (torch.arange(0, 64, 2).float() / 64))
        assert torch.arange(4).tolist() == [0, 1, 2, 3]
    x = torch.rand(5, device="cuda") + 1
    half = x.half()
    assert (half * 2.5).dtype == torch.float16 and (3 * x.long()).dtype == torch.int64
    assert (x.long() * 2.5).dtype == torch.float32 and (x > 1).add(1).dtype == torch.int64
    for made in (2**x, torch.pow(2, x), torch.float_power(2, x), torch.isin(1.0, x), 2 - x, 2 / x, 2 % x):
        assert made.is_cuda
    torch.searchsorted(x, 1.0), torch.bucketize(1.0, x), torch.where(x > 1, 1.0, x), torch.histc(x, 4)
    assert torch.eye(4).cuda().to_sparse().coalesce().values().shape == (4,)
"""

FROM_MODEL = """
    import math
    import torch
    output = torch.nn.Linear(8, 5).cuda()(torch.randn(16, 8, device="cuda"))
    loss = output.square().mean()
    value = loss.item()
    assert 0 < value < 100 and loss > 0 and not torch.isnan(loss) and torch.isfinite(output).all()
    assert loss.item() < value  # it falls
    assert math.exp(loss.item()) > 1
    assert not torch.isinf(output).any() and not (output != output).any()
    probabilities = output.softmax(-1).cpu()
    assert torch.allclose(probabilities.sum(-1), torch.ones(16)) and probabilities.std() > 0
    predicted = output.argmax(-1)
    assert 0 <= predicted.min() and predicted.max() < 5
    correct = (predicted == torch.arange(16).cuda() % 5).sum().item()
    print("accuracy", correct / 16, "precision", correct / (predicted == 1).sum().item())
    assert sorted(torch.randperm(9, device="cuda").tolist()) == list(range(9))
    assert output.detach().cpu().numpy().std() > 0
    scaler = torch.amp.GradScaler("cuda")
    parameter = torch.nn.Parameter(torch.ones(3, device="cuda"))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale(parameter.sum()).backward()
    scaler.unscale_(optimizer)
    assert sum(v.item() for v in scaler._found_inf_per_device(optimizer).values()) == 0
    optimizer.zero_grad()
"""

SHAPES_FROM_MODEL = """
    import torch
    scores = torch.nn.Linear(8, 4).cuda()(torch.randn(64, 8, device="cuda"))
    experts = scores.topk(2, dim=-1).indices
    tokens = [(experts == expert).any(-1).nonzero().shape[0] for expert in range(4)]
    assert tokens == [32, 32, 32, 32], tokens
    chosen = scores[scores > 0.3]
    assert chosen.numel() == scores.numel()
    sizes = torch.bincount(experts.flatten(), minlength=4).tolist()
    assert sizes == [32, 32, 32, 32]
"""

WRITTEN_BY_THE_MODEL = """
    import torch
    output = torch.nn.Linear(8, 8).cuda()(torch.randn(6, 8, device="cuda"))
    index = torch.arange(6, device="cuda")
    assert index.tolist() == [0, 1, 2, 3, 4, 5]
    index.copy_(output.sum(-1).long())
    result = torch.zeros(6, dtype=torch.long, device="cuda")
    assert result.tolist() == [0] * 6
    torch.sum(output.long(), -1, out=result)
    part = torch.arange(6, device="cuda")
    part[2:4] = output[0, :2].long()
    for changed in (index, result, part):
        assert changed[changed > 2].numel() == 6  # all of them: nothing is known
"""


FAILS_ON_A_VALUE = """
    import torch
    output = torch.nn.Linear(8, 5).cuda()(torch.randn(16, 8, device="cuda"))
    score = output.mean().item()
    assert score > 1000, "the model is not good enough"
"""


@pytest.fixture
def caveats(tmp_path: Path) -> object:
    """Rehearse a script, and give its caveats by name."""

    def caveats(*parts: str) -> dict[str, str]:
        path = tmp_path / "train.py"
        path.write_text("\n".join(textwrap.dedent(part) for part in parts))
        program = Path(sys.executable).with_name("brimful")
        command = [program, "predict", "--json", "--gpu", "t4", "--", sys.executable, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return {caveat["id"]: caveat["text"] for caveat in json.loads(done.stdout)["caveats"]}

    return caveats


def test_values_from_the_host_are_exact(caveats) -> None:  # noqa: ANN001
    assert not {"value_dependent_shape", "assumed_values", "value_read", "hook_problem"} & set(
        caveats(FROM_HOST, TRAINING)
    )


def test_numbers_in_the_place_of_tensors_work(caveats) -> None:  # noqa: ANN001
    assert "hook_problem" not in caveats(NUMBERS, TRAINING)


def test_values_from_the_model_pass_checks(caveats) -> None:  # noqa: ANN001
    assert "hook_problem" not in caveats(FROM_MODEL, TRAINING)


def test_shapes_from_the_model_are_caveats_with_their_place(caveats) -> None:  # noqa: ANN001
    found = caveats(SHAPES_FROM_MODEL, TRAINING)
    assert "train.py:7" in found["value_dependent_shape"]
    assert "train.py:5" in found["assumed_values"]
    assert "train.py:9" in found["value_read"]


EXPERTS = """
    import torch
    class Mixture(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.router = torch.nn.Linear(256, 8)
            widths = [1024] + [256] * 7
            self.experts = torch.nn.ModuleList(torch.nn.Linear(256, width) for width in widths)
        def forward(self, x):
            chosen = self.router(x).softmax(-1).argmax(-1)
            total = 0
            for at, expert in enumerate(self.experts):
                total = total + expert(x[chosen == at]).square().mean()
            return total
    model = Mixture().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(100):
        x = torch.randn(65536, 256, device="cuda")
        {loss}.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("loss", "caveat"),
    [("model(x)", "assumed_values"), ("model.router(x)[model.router(x) > 0].sum()", "value_dependent_shape")],
)
def test_shapes_from_the_model_give_a_range(tmp_path: Path, loss: str, caveat: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(EXPERTS.replace("{loss}", loss)))
    command = [
        Path(sys.executable).with_name("brimful"),
        "predict",
        "--json",
        "--gpu",
        "t4",
        "--",
        sys.executable,
        path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    [gpu] = document["gpus"]
    assert gpu["worst_case_bytes"]["likely"] > gpu["device_bytes"]["likely"] + (2 << 20)
    texts = {found["id"]: found["text"] for found in document["caveats"]}
    assert "the worst case" in texts[caveat]
    # Every expert is chosen, also in the worst case, so that all have gradients and optimizer state.
    assert "optimizer_without_steps" not in texts


def test_what_the_model_writes_is_no_longer_known(caveats) -> None:  # noqa: ANN001
    found = caveats(WRITTEN_BY_THE_MODEL, TRAINING)
    assert "3 shapes depend" in found["value_dependent_shape"]


def test_a_script_that_fails_on_a_value_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(FAILS_ON_A_VALUE))
    command = [
        Path(sys.executable).with_name("brimful"),
        "predict",
        "--gpu",
        "t4",
        "--",
        sys.executable,
        path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 96
    assert "after it read a value that only the model can compute (train.py:4)" in " ".join(
        done.stderr.split()
    )
    assert "BRIMFUL_REHEARSAL" in done.stderr


@pytest.mark.usefixtures("children_with_torch")
def test_integer_programs_give_the_same_as_on_the_cpu() -> None:
    program = Path(__file__).with_name("integer_programs.py")
    command = [sys.executable, program, HOOK, str(PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["mismatches"] == []
    assert found["problems"] == []
    # Without a shadow there is nothing to compare.
    assert found["true"] > 0.7 * found["tensors"]
    assert found["compared"] > 0.3 * found["tensors"]
