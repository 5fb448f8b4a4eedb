"""`brimful predict` where torch has no CUDA: the CUDA build is taken for one, see `pretend_no_cuda`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

HOOK = Path(__file__).parents[2] / "crates/brimful-rehearse/src/hook"
WITHOUT_CUDA = {**os.environ, "BRIMFUL_REHEARSAL_WITHOUT_CUDA": "1"}

PLAIN = """
    import torch
    from torch import nn
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(100):
        x = torch.randn(4096, 1024, device=device)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{loss.item()} {loss:.3f}")
"""

MIXED = """
    import copy, torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint
    from torch.utils.data import DataLoader, TensorDataset

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(1000, 256)
            self.qkv = nn.Linear(256, 768)
            self.head = nn.Linear(256, 1000, bias=False)
            self.head.weight = self.tokens.weight
            self.dropout = nn.Dropout(0.1)

        def attend(self, x):
            q, k, v = (part.unflatten(2, (4, 64)).transpose(1, 2) for part in self.qkv(x).chunk(3, 2))
            found = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return x + self.dropout(found.transpose(1, 2).flatten(2))

        def forward(self, tokens):
            return self.head(checkpoint(self.attend, self.tokens(tokens), use_reentrant=False))

    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())  # before the model moves: it must hold the same objects
    model.cuda()
    assert model.head.weight is model.tokens.weight is optimizer.param_groups[0]["params"][0]
    average = copy.deepcopy(model)
    data = TensorDataset(torch.randint(1, 1000, (512, 64)))
    scaler = torch.amp.GradScaler("cuda")
    loader = DataLoader(data, batch_size=16, num_workers=1, pin_memory=True)
    for step, (tokens,) in enumerate(loader):
        assert tokens.min() > 0, "what is on the processor has its values"
        tokens = tokens.to("cuda", non_blocking=True)
        assert tokens.is_cuda and tokens.device == torch.device("cuda:0")
        for part in tokens.chunk(2):
            with torch.autocast("cuda", dtype=torch.float16):
                logits = model(part)
                loss = functional.cross_entropy(logits.flatten(0, 1), part.flatten())
            assert logits.dtype == torch.float16 and loss.dtype == torch.float32
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if not torch.isfinite(loss) or not torch.isfinite(logits).all():
            raise SystemExit("not finite")
        assert logits[part > 3].shape[0] > 500  # all but a few tokens
        assert loss.detach().cpu().numpy() >= 0.0 and part.sum().item() >= 0
        torch.cuda.synchronize()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters()):
                kept.mul_(0.9).add_(new, alpha=0.1)
        assert torch.cuda.get_device_name() == "Tesla T4" and torch.cuda.memory_allocated() > 0
"""


def brimful(*arguments: str, env: dict[str, str] = WITHOUT_CUDA) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("brimful")
    return subprocess.run(
        [program, "predict", *arguments], capture_output=True, text=True, check=False, timeout=300, env=env
    )


@pytest.fixture
def script(tmp_path: Path) -> object:
    def write(text: str) -> str:
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(text))
        return str(path)

    return write


def predict(path: str, gpu: str, env: dict[str, str] = WITHOUT_CUDA) -> tuple[dict, str]:
    done = brimful("--json", "--gpu", gpu, "--", sys.executable, path, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def terms(document: dict) -> list[int]:
    return [term["likely_bytes"] for term in document["terms"]]


def ids(document: dict) -> list[str]:
    return [caveat["id"] for caveat in document["caveats"]]


def test_the_figures_are_those_of_the_phantom_and_called_weaker(script) -> None:  # noqa: ANN001
    path = script(PLAIN)
    weak, said = predict(path, "t4,a100-40")
    exact, nothing = predict(path, "t4,a100-40", env=dict(os.environ))
    for mine, its in zip(weak["gpus"], exact["gpus"], strict=True):
        assert mine["peak_allocated_bytes"] == its["peak_allocated_bytes"]
        assert mine["peak_reserved_bytes"] == its["peak_reserved_bytes"]
        assert mine["device_bytes"]["safe"] > its["device_bytes"]["safe"]
    assert [term["likely_bytes"] for term in weak["terms"]] == [
        term["likely_bytes"] for term in exact["terms"]
    ]
    assert ids(weak) == ["fake_tensor_fallback"]
    assert ids(exact) == []
    assert said.count("is a CPU-only build: the prediction is less accurate") == 1
    assert "hint: install the CUDA build" in said
    assert "CUDA" not in nothing


@pytest.mark.parametrize("gpu", ["t4"])
def test_a_script_as_people_write_it(script, gpu: str) -> None:  # noqa: ANN001
    path = script(MIXED)
    weak, _ = predict(path, gpu)
    exact, _ = predict(path, gpu, env=dict(os.environ))
    assert weak["steps"] == 3
    assert ids(weak)[0] == "fake_tensor_fallback"
    assert "value_dependent_shape" in ids(weak)
    assert weak["peak"]["allocated_bytes"] == pytest.approx(exact["peak"]["allocated_bytes"], rel=0.1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = torch.ones(8, device='cuda').unique_consecutive()", "aten.unique_consecutive"),
        ("torch.distributed.init_process_group('nccl')", "several processes"),
        ("raise RuntimeError('no data here')", "no data here"),
    ],
)
def test_what_cannot_be_rehearsed_is_told(script, text: str, expected: str) -> None:  # noqa: ANN001
    done = brimful("--gpu", "t4", "--", sys.executable, script(f"import torch\n{text}"))
    assert done.returncode == 96
    assert expected in done.stderr
    assert "is a CPU-only build, which cannot rehearse this script" in done.stderr
    assert "hint: install the CUDA build of torch" in done.stderr


def test_a_checkpoint_is_written_and_read(script, tmp_path: Path) -> None:  # noqa: ANN001
    path = str(tmp_path / "last.pt")
    text = f"""
        import torch
        model = torch.nn.Linear(64, 64).cuda()
        torch.save(model.state_dict(), {path!r})
        model.load_state_dict(torch.load({path!r}, map_location="cuda", weights_only=True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        while True:
            model(torch.randn(8, 64, device="cuda")).sum().backward()
            optimizer.step()
    """
    document, _ = predict(script(text), "t4")
    assert document["steps"] == 3


SHAPES = [
    ((4096, 4096), 0),
    ((4096, 4096), 1),
    ((4096, 4096), None),
    ((65536, 768), 0),
    ((65536, 770), 0),
    ((100_000,), None),
    ((64, 128, 28, 28), (0, 2, 3)),
    ((16, 2048, 512), (0, 1)),
    ((3, 5), 0),
    ((32, 64, 512), 1),
    ((7, 4096, 96), (0, 1)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_scratch_memory_of_sums_is_that_of_the_phantom(
    shape: tuple[int, ...], dim: int | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HOOK))
    from brimful_ledger import rounded
    from brimful_reduce import scratch

    class T4:
        multiprocessors = 40
        threads_per_multiprocessor = 1024

    source = torch.empty(shape, dtype=dtype, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    made = source.sum() if dim is None else source.sum(dim)
    taken = torch.cuda.max_memory_allocated() - before - rounded(made.nbytes)
    assert taken == sum(map(rounded, scratch(T4, source, dim)))
