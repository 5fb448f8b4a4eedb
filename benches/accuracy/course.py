"""Rebuild the recorded steps of a course's language model, and compare allocation by allocation.

python course.py TRUTH: a line of JSON for each recorded snapshot whose program is known. The model and the
optimizer are written from the facts in metadata.json and from what each recorded allocation was for; the
order of the warm-up is that of the public script that made the records. No code of the course is used.
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


class Rotary(nn.Module):
    """The table of rotary positions."""

    def __init__(self, length: int, half: int) -> None:
        super().__init__()
        self.register_buffer("turns", torch.empty(2, length, half), persistent=False)


class Model(nn.Module):
    """The whole model, with an output head of its own."""

    def __init__(self, facts: dict) -> None:
        super().__init__()
        width, heads = facts["d_model"], facts["heads"]
        self.embedding = Matrix(facts["vocab"], width)
        # Before the blocks, as their segments show: a module's own table would move to the card last.
        self.rotary = Rotary(facts["context_length"], width // heads // 2)
        self.blocks = nn.ModuleList(Block(width, heads, facts["d_ff"]) for _ in range(facts["layers"]))
        self.norm = Norm(width)
        self.head = Matrix(facts["vocab"], width)

    def forward(self, tokens):
        cos, sin = self.rotary.turns[:, : tokens.shape[1]]
        # The second name keeps it until the end, even where no gradient needs it, and longer than `x`.
        x = embedded = self.embedding.weight[tokens]  # noqa: F841
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
    counts = (WARM_UP, 1) * (1 + training)
    made = [torch.zeros(count, *shape, dtype=torch.int64, device="cuda") for count in counts]
    inputs, labels = [*made[0], *made[1]], [*made[2], *made[3]] if training else []

    def cast():
        return torch.autocast("cuda", torch.bfloat16) if half else contextlib.nullcontext()

    logits = loss = None
    for number, tokens in enumerate(inputs):
        if number == WARM_UP:
            # Until here the names hold on to the last logits and the last loss while the next are made.
            logits = loss = None
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None, stacks="python")
        if not training:
            with torch.inference_mode(), cast():
                model(tokens)
            continue
        with cast():
            logits = model(tokens)
            loss = cross_entropy(logits, labels[number])
        loss.backward()
        optimizer.step()
        if number < WARM_UP:
            optimizer.zero_grad()
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return {
        "events": history((event["action"], event["addr"], event["size"]) for event in events),
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
    }


def history(events) -> list:
    """Allocations by size and frees by what they free, in order; addresses do not count."""
    seen, live, count = [], {}, 0
    for action, address, size in events:
        if action == "alloc":
            live[address] = count
            seen.append(("alloc", size))
            count += 1
        elif action == "free_completed":
            # What was there before the record has no number.
            seen.append(("free", live.pop(address, None), size))
    return seen


def compare(facts: dict, recorded: list) -> dict:
    """A recorded step beside the same step here."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    found = rebuild(facts)
    pairs = enumerate(zip(recorded, found["events"], strict=False))
    identical = next((i for i, (a, b) in pairs if a != b), None)
    if identical is None:
        identical = min(len(recorded), len(found["events"]))
    return {
        "id": facts["id"],
        "events": len(recorded),
        "own_events": len(found["events"]),
        "identical": identical,
        "peak_allocated": facts["peak"]["allocated_bytes"],
        "own_peak_allocated": found["allocated"],
        "peak_reserved": facts["peak"]["reserved_bytes"],
        "own_peak_reserved": found["reserved"],
    }


def main() -> None:
    """Compare every snapshot of the model whose program is known."""
    truth = pathlib.Path(sys.argv[1]) / "snapshots"
    events = {}
    columns = ["snapshot", "i", "action", "addr", "size"]
    for row in pq.read_table(truth / "events.parquet", columns=columns).to_pylist():
        events.setdefault(row["snapshot"], []).append((row["i"], row["action"], row["addr"], row["size"]))
    for facts in json.loads((truth / "metadata.json").read_text()):
        model = facts.get("model", {})
        # The other model's program is not public, and it was recorded under other circumstances.
        if "RoPE" not in model.get("kind", "") or model.get("config") != "medium":
            continue
        recorded = history(event[1:] for event in sorted(events.get(facts["id"], [])))
        try:
            result = compare(facts, recorded)
        except (KeyError, TypeError, torch.cuda.OutOfMemoryError) as error:
            result = {"id": facts["id"], "skip": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
