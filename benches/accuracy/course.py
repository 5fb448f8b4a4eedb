"""Rebuild the recorded steps of a course's language model, and compare allocation by allocation.

python course.py TRUTH: a line of JSON for each recorded snapshot whose program is known. The model and the
optimizer are written from the facts in metadata.json and from what each recorded allocation was for; not from
the course's code.
"""

import contextlib
import gc
import json
import math
import pathlib
import sys

import pyarrow.parquet as pq
import torch
from quick import unfilled
from torch import nn

WARM_UP = 5


def linear(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """A product over the last dimension, by einsum."""
    return torch.einsum("...i,oi->...o", inputs, weight)


class Norm(nn.Module):
    """RMSNorm in full precision."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(kind)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions on pairs of neighbors."""
    first, second = x.reshape(*x.shape[:-1], -1, 2).movedim(-1, 0)
    rotated_first = cos * first - sin * second
    rotated_second = sin * first + cos * second
    return torch.stack((rotated_first, rotated_second), dim=-1).flatten(-2)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax by hand."""
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    exponential = torch.exp(shifted)
    return exponential / torch.sum(exponential, dim=-1, keepdim=True)


def attend(query, key, value, mask):
    """Attention by explicit products."""
    scores = torch.einsum("...qd,...kd->...qk", query, key) / math.sqrt(key.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, value)


class Attention(nn.Module):
    """Causal attention with rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        matrices = [nn.Parameter(torch.empty(width, width)) for _ in range(4)]
        self.query, self.key, self.value, self.output = matrices

    def forward(self, x, cos, sin):
        query, key, value = linear(x, self.query), linear(x, self.key), linear(x, self.value)
        query, key, value = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (query, key, value))
        query = rotate(query, cos, sin)
        key = rotate(key, cos, sin)
        places = torch.arange(x.shape[1], device=x.device)
        mask = places.view(-1, 1) >= places.view(1, -1)
        mixed = attend(query, key, value, mask)
        mixed = mixed.transpose(1, 2).flatten(-2).contiguous()
        return linear(mixed, self.output)


def silu(x: torch.Tensor) -> torch.Tensor:
    """SiLU by hand."""
    return x * torch.sigmoid(x)


class SwiGlu(nn.Module):
    """The gated feed-forward part."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(inner, width))
        self.down = nn.Parameter(torch.empty(width, inner))
        self.up = nn.Parameter(torch.empty(inner, width))

    def forward(self, x):
        return linear(silu(linear(x, self.gate)) * linear(x, self.up), self.down)


class Block(nn.Module):
    """Attention and feed-forward, each with a norm before it."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(width, heads), SwiGlu(width, inner)
        self.first_norm, self.second_norm = Norm(width), Norm(width)

    def forward(self, x, cos, sin):
        mixed = self.attention(self.first_norm(x), cos, sin)
        middle = x + mixed
        fed = self.feed_forward(self.second_norm(middle))
        return middle + fed


class Matrix(nn.Module):
    """A weight with a place of its own in the order of parameters."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, columns))


class Model(nn.Module):
    """The whole model, with an output head of its own."""

    def __init__(self, facts: dict) -> None:
        super().__init__()
        width, heads = facts["d_model"], facts["heads"]
        self.embedding = Matrix(facts["vocab"], width)
        self.blocks = nn.ModuleList(Block(width, heads, facts["d_ff"]) for _ in range(facts["layers"]))
        self.norm = Norm(width)
        self.head = Matrix(facts["vocab"], width)
        half = width // heads // 2
        self.register_buffer("turns", torch.empty(2, facts["context_length"], half), persistent=False)

    def forward(self, tokens):
        cos, sin = self.turns[0, : tokens.shape[1]], self.turns[1, : tokens.shape[1]]
        # It keeps a name of its own, so it lives until the end even where no gradient needs it.
        embedded = self.embedding.weight[tokens]
        x = embedded
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.norm(x)
        return linear(x, self.head.weight)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    """Log-softmax by hand."""
    largest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - largest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy by hand."""
    negative = -log_softmax(logits)
    return torch.mean(torch.gather(negative, -1, labels.unsqueeze(-1)))


class AdamW(torch.optim.Optimizer):
    """AdamW as a loop, with temporaries for each parameter."""

    def __init__(self, parameters) -> None:
        super().__init__(parameters, {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.01})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first_beta, second_beta = group["betas"]
            for p in group["params"]:
                gradient = p.grad
                state = self.state[p]
                p.sub_(group["lr"] * group["weight_decay"] * p)
                first = state.get("first", torch.zeros_like(p))
                second = state.get("second", torch.zeros_like(p))
                new_first = first_beta * first + (1 - first_beta) * gradient
                new_second = second_beta * second + (1 - second_beta) * gradient**2
                p.sub_(0.001 * new_first / (torch.sqrt(new_second) + group["eps"]))
                state["first"], state["second"] = new_first, new_second


def rebuild(facts: dict) -> dict:
    """One recorded step again: sizes of its allocations, and its peaks."""
    model_facts = facts["model"]
    training = facts["optimizer"] is not None
    half = "bf16" in model_facts["compute"]
    with unfilled():
        model = Model(model_facts)
    model.to("cuda")
    optimizer = AdamW(model.parameters()) if training else None
    shape = (model_facts["batch_size"], model_facts["context_length"])
    # The batches of the warm-up stay; inference has no labels.
    counts = [count for count in (WARM_UP, 1) for _ in range(1 + training)]
    batches = [torch.zeros(count, *shape, dtype=torch.int64).to("cuda") for count in counts]
    tokens, labels = batches[-2 if training else -1][0], batches[-1][0]

    def cast():
        return torch.autocast("cuda", torch.bfloat16) if half else contextlib.nullcontext()

    def step():
        if not training:
            with torch.inference_mode(), cast():
                model(tokens)
            return
        with cast():
            logits = model(tokens)
            loss = cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()

    for _ in range(WARM_UP):
        if training:
            optimizer.zero_grad()
        step()
    if training:
        optimizer.zero_grad()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None, stacks="python")
    step()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return {
        "sizes": [event["size"] for event in events if event["action"] == "alloc"],
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
    }


def main() -> None:
    """Compare every snapshot of the model whose program is known."""
    truth = pathlib.Path(sys.argv[1]) / "snapshots"
    sizes = {}
    columns = ["snapshot", "i", "action", "size"]
    for row in pq.read_table(truth / "events.parquet", columns=columns).to_pylist():
        if row["action"] == "alloc":
            sizes.setdefault(row["snapshot"], []).append((row["i"], row["size"]))
    for facts in json.loads((truth / "metadata.json").read_text()):
        # The other model's program is not public, and it was recorded under other circumstances.
        if "RoPE" not in facts["model"]["kind"] or facts["model"].get("config") != "medium":
            continue
        recorded = [size for _, size in sorted(sizes[facts["id"]])]
        gc.collect()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        found = rebuild(facts)
        pairs = enumerate(zip(recorded, found["sizes"], strict=False))
        identical = next((i for i, (a, b) in pairs if a != b), None)
        if identical is None:
            identical = min(len(recorded), len(found["sizes"]))
        result = {
            "id": facts["id"],
            "allocations": len(recorded),
            "own_allocations": len(found["sizes"]),
            "identical": identical,
            "peak_allocated": facts["peak"]["allocated_bytes"],
            "own_peak_allocated": found["allocated"],
            "peak_reserved": facts["peak"]["reserved_bytes"],
            "own_peak_reserved": found["reserved"],
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
