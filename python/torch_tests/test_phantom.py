"""Ordinary PyTorch on the phantom: what people rely on behaves as on a card."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
TOTAL = 15_634_661_376  # the card of conftest.py


@pytest.fixture(autouse=True)
def empty_card() -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def test_the_card_is_a_t4() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    properties = torch.cuda.get_device_properties(0)
    assert properties.name == "Tesla T4"
    assert (properties.major, properties.minor) == (7, 5)
    assert properties.total_memory == TOTAL
    assert properties.multi_processor_count == 40


def test_out_of_memory_is_the_real_error_at_the_capacity() -> None:
    kept = torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(6 << 30, dtype=torch.uint8, device="cuda")
    message = str(caught.value)
    assert "Tried to allocate 6.00 GiB" in message
    assert "total capacity of 14.56 GiB" in message
    assert "10.00 GiB is allocated by PyTorch" in message
    assert kept.numel() == 10 << 30
    assert torch.empty(4 << 30, dtype=torch.uint8, device="cuda").numel() == 4 << 30


def test_memory_stats_count_as_on_a_card() -> None:
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    small = torch.empty(1000, dtype=torch.uint8, device="cuda")
    large = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    stats = torch.cuda.memory_stats()
    assert stats["allocation.all.allocated"] - before == 2
    assert stats["allocated_bytes.all.current"] == 1024 + 30 * MIB
    assert stats["reserved_bytes.all.current"] == 2 * MIB + 30 * MIB
    free, total = torch.cuda.mem_get_info()
    assert total == TOTAL
    assert free == TOTAL - 32 * MIB
    del small, large
    assert torch.cuda.memory_allocated() == 0


def train(model: nn.Module, batch: torch.Tensor, *, half: bool = False) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=half)
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.float16, enabled=half):
            loss = model(batch).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        assert loss.item() == 0
    assert optimizer.state, "the optimizer has made a step"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(256, 768)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(x).view(x.shape[0], x.shape[1], 3, 4, 64).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in parts)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, 2, batch_first=True, dropout=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)), (64, 512)),
        (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.MaxPool2d(2)), (8, 3, 64, 64)),
        (Attention, (2, 128, 256)),
        (Recurrent, (4, 32, 64)),
    ],
    ids=["linear", "convolution", "attention", "recurrent"],
)
def test_training_steps_run(make: type[nn.Module], shape: tuple[int, ...], half: bool) -> None:  # noqa: FBT001
    train(make().cuda(), torch.randn(shape, device="cuda"), half=half)


def test_checkpointing_keeps_less() -> None:
    from torch.utils.checkpoint import checkpoint

    def peak(*, checkpointed: bool) -> int:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        layers = nn.ModuleList(
            nn.Sequential(nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1024)) for _ in range(8)
        )
        layers.cuda()
        x = torch.randn(4096, 1024, device="cuda", requires_grad=True)
        for layer in layers:
            x = checkpoint(layer, x, use_reentrant=False) if checkpointed else layer(x)
        x.sum().backward()
        return torch.cuda.max_memory_allocated()

    assert peak(checkpointed=True) < 0.7 * peak(checkpointed=False)


def test_streams_events_and_pinned_memory() -> None:
    side = torch.cuda.Stream()
    tensor = torch.zeros(1000, pin_memory=True).to("cuda", non_blocking=True)
    with torch.cuda.stream(side):
        tensor.record_stream(side)
        other = tensor * 2
    side.synchronize()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    assert event.query()
    assert other.cpu().sum() == 0


def test_a_graph_is_captured_into_a_pool_of_its_own() -> None:
    static = torch.zeros(MIB, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = static * 2
    graph.replay()
    pools = {tuple(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()}
    assert len(pools) == 2
    assert result.shape == static.shape
