"""A decoder as LitGPT builds it, in the forms that its public repository had when its tables were measured.

Written from what the repository does, for memory only: no value is ever needed, so initialization and
checkpoints are left out.
"""

import dataclasses
import enum
import math

import torch
from torch import nn
from torch.nn import functional


class Era(enum.IntEnum):
    """When a table was measured, as far as it decides memory."""

    # October 2023, the commit that the resource tables name: norms in the type of the weights.
    FIRST = 0
    # January 2024, when the adapters were measured: norms in full precision.
    ADAPTERS = 1
    # March and April 2024, most of the configurations: back to the type of the weights before the scale.
    HUB = 2
    # From May 2024: LoRA's columns are put in place without a second copy.
    IN_PLACE = 3
    # From July 2024: the scale of norms in full precision too, and Gemma 2.
    GEMMA_2 = 4


@dataclasses.dataclass(frozen=True)
class Shape:
    """What of a model's configuration decides memory."""

    layers: int
    width: int = 4096
    heads: int = 32
    groups: int = 0
    head: int = 0
    inner: int = 0
    vocabulary: int = 32000
    context: int = 4096
    rotary: float = 1.0
    norm: str = "rms"
    # "plain" is one matrix, a GELU and another; the others have a gate.
    feed_forward: str = "silu"
    parallel: bool = False
    shared_norm: bool = False
    bias: bool = False
    head_bias: bool = False
    unit_offset: bool = False
    # Gemma 2: norms after each part, capped scores, every other layer with a window.
    capped: bool = False

    @property
    def query_groups(self) -> int:
        return self.groups or self.heads

    @property
    def head_width(self) -> int:
        return self.head or self.width // self.heads

    @property
    def feed_forward_width(self) -> int:
        return self.inner or 4 * self.width


@dataclasses.dataclass(frozen=True)
class Lora:
    """Rank, and which matrices get it: query, key, value, then output, feed-forward and head together."""

    rank: int
    parts: tuple[bool, bool, bool] = (True, False, True)
    rest: bool = False
    dropout: float = 0.05


ADAPTER_PROMPT, ADAPTER_START = 10, 2


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is built: the sizes, the method and its era."""

    shape: Shape
    method: str
    era: Era
    lora: Lora | None = None

    def linear(self, inputs: int, outputs: int, *, bias: bool) -> nn.Module:
        """A matrix of the model, with what the method adds to it."""
        if self.method == "adapter_v2":
            return ScaledLinear(inputs, outputs, bias=bias)
        if self.lora is not None and self.lora.rest:
            return LoraLinear(self.lora, inputs, outputs, bias=bias)
        return nn.Linear(inputs, outputs, bias=bias)

    def norm(self) -> nn.Module:
        if self.shape.norm == "layer":
            return nn.LayerNorm(self.shape.width)
        return RmsNorm(self)


class RmsNorm(nn.Module):
    """RMSNorm in the precision of its era."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.era, self.unit_offset = plan.era, plan.shape.unit_offset
        self.weight = nn.Parameter(torch.ones(plan.shape.width))

    def forward(self, x):
        kind = x.dtype
        if self.era > Era.FIRST:
            x = x.float()
        normed = x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5)
        weight = 1 + self.weight if self.unit_offset else self.weight
        if self.era == Era.GEMMA_2:
            return (normed * weight.float()).to(kind)
        if self.era >= Era.HUB:
            return normed.to(kind) * weight
        return (weight * normed).to(kind)


class LoraLinear(nn.Module):
    """A frozen matrix and a product of two narrow ones."""

    def __init__(self, lora: Lora, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.dropout = nn.Dropout(lora.dropout)
        self.lora_down = nn.Parameter(torch.empty(lora.rank, inputs))
        self.lora_up = nn.Parameter(torch.empty(outputs, lora.rank))

    def forward(self, x):
        plain = self.linear(x)
        return plain + (self.dropout(x) @ self.lora_down.T @ self.lora_up.T) * 0.5


class LoraQkv(nn.Module):
    """The same for queries, keys and values in one matrix: a grouped convolution over some of them."""

    def __init__(self, plan: Plan, outputs: int) -> None:
        super().__init__()
        shape, lora = plan.shape, plan.lora
        self.era, self.outputs = plan.era, outputs
        self.linear = nn.Linear(shape.width, outputs, bias=shape.bias)
        self.dropout = nn.Dropout(lora.dropout)
        self.same_sizes = shape.query_groups == shape.heads
        self.every_part = all(lora.parts)
        counts = (shape.heads, shape.query_groups, shape.query_groups)
        self.sizes = [n * shape.head_width for n, wanted in zip(counts, lora.parts, strict=True) if wanted]
        self.lora_down = nn.Parameter(torch.empty(lora.rank * len(self.sizes), shape.width))
        self.lora_up = nn.Parameter(torch.empty(sum(self.sizes), lora.rank))
        # Which columns are meant does not matter for memory, only how many.
        self.columns = list(range(sum(self.sizes)))
        self.kept = None

    def up(self, narrow):
        weight = self.lora_up.unsqueeze(-1)
        if self.same_sizes:
            return functional.conv1d(narrow, weight, groups=len(self.sizes))
        pairs = zip(narrow.chunk(len(self.sizes), dim=1), weight.split(self.sizes), strict=True)
        return torch.cat([functional.conv1d(a, b) for a, b in pairs], dim=1)

    def place(self, x):
        """Into the columns of the parts; zeros for the others."""
        if self.every_part:
            return x
        if self.era >= Era.IN_PLACE:
            if self.kept is None:
                self.kept = torch.tensor(self.columns, device=x.device)
            return x.new_zeros(*x.shape[:-1], self.outputs).index_copy_(-1, self.kept, x)
        x = x.transpose(0, 1)
        zeros = x.new_zeros(*x.shape[:-1], self.outputs)
        columns = torch.tensor(self.columns, device=x.device)
        placed = zeros.view(-1, self.outputs).index_copy(1, columns, x.reshape(-1, len(self.columns)))
        return placed.view(*x.shape[:-1], self.outputs).transpose(0, 1)

    def forward(self, x):
        plain = self.linear(x)
        narrow = functional.linear(self.dropout(x), self.lora_down)
        wide = self.up(narrow.transpose(-2, -1)).transpose(-2, -1)
        return plain + self.place(wide) * 0.5


class ScaledLinear(nn.Module):
    """A frozen matrix with a bias and a scale that are trained."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.adapter_bias = nn.Parameter(torch.zeros(outputs))
        self.adapter_scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x):
        return self.adapter_scale * (self.linear(x) + self.adapter_bias)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions; their tables are in full precision, so the products are too."""
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (turned * sin)).to(x.dtype)


def causal_mask(query: torch.Tensor, least: float) -> torch.Tensor:
    """Nothing to add, or `least` for what comes later."""
    length = query.size(2)
    mask = torch.ones(length, length, dtype=query.dtype, device=query.device).triu(diagonal=1)
    return mask.masked_fill_(mask.bool(), least)


class Attention(nn.Module):
    """Causal attention with any number of groups of queries; adapters look at a learned prompt too."""

    def __init__(self, plan: Plan, layer: int) -> None:
        super().__init__()
        shape = self.shape = plan.shape
        outputs = (shape.heads + 2 * shape.query_groups) * shape.head_width
        self.era = plan.era
        self.qkv = LoraQkv(plan, outputs) if plan.lora else plan.linear(shape.width, outputs, bias=shape.bias)
        self.output = plan.linear(shape.heads * shape.head_width, shape.width, bias=shape.bias)
        self.windowed = shape.capped and layer % 2 == 0
        self.adapted = plan.method.startswith("adapter") and layer >= ADAPTER_START
        self.seen = self.cache = None
        if self.adapted:
            self.adapter_prompt = nn.Embedding(ADAPTER_PROMPT, shape.width)
            self.adapter_gate = nn.Parameter(torch.zeros(1, 1, shape.heads, 1))

    def parts(self, mixed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        batch, length, _ = mixed.shape
        per_group = self.shape.heads // self.shape.query_groups
        mixed = mixed.view(batch, length, self.shape.query_groups, per_group + 2, self.shape.head_width)
        return mixed.permute(0, 2, 3, 1, 4).split((per_group, 1, 1), dim=2)

    def forward(self, x, cos, sin, mask, places):
        batch, length, _ = x.shape
        shape = self.shape
        # The name keeps it until the end, even where no gradient needs it.
        mixed = self.qkv(x)
        query, key, value = self.parts(mixed)
        if shape.query_groups != shape.heads and (places is None or shape.query_groups != 1):
            whole = (batch, shape.query_groups, shape.heads // shape.query_groups, length, shape.head_width)
            key, value = key.expand(whole), value.expand(whole)
        query, key, value = (t.reshape(batch, -1, length, shape.head_width) for t in (query, key, value))
        turned = int(shape.rotary * shape.head_width)
        new_query = rotated(query[..., :turned], cos, sin)
        new_key = rotated(key[..., :turned], cos, sin)
        query = torch.cat((new_query, query[..., turned:]), dim=-1)
        key = torch.cat((new_key, key[..., turned:]), dim=-1)
        if places is not None:
            pairs = zip(self.cache, (key, value), strict=True)
            key, value = (kept.index_copy_(2, places, new) for kept, new in pairs)
        if self.windowed:
            mask = causal_mask(query, float("-inf"))
            window = torch.ones_like(mask).tril(diagonal=-4096)
            window.masked_fill_(window.bool(), float("-inf"))
            mask += window
        y = self.attend(query, key, value, mask)
        if self.adapted:
            y = y + self.adapter_gate * self.attend(query, *self.prompt(), self.prompt_mask(query))
        return self.output(y.reshape(batch, length, -1))

    def attend(self, query, key, value, mask):
        scale = 1.0 / math.sqrt(self.shape.head_width)
        if not self.shape.capped:
            y = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, dropout_p=0.0, scale=scale, is_causal=mask is None
            )
            return y.transpose(1, 2)
        scores = query @ key.mT * scale
        scores = torch.tanh(scores / 50.0) * 50.0
        if mask is None:
            mask = causal_mask(query, torch.finfo(query.dtype).min)
        scores = scores + mask
        weights = functional.softmax(scores, dim=-1, dtype=torch.float).to(query.dtype)
        return (weights @ value).transpose(1, 2)

    def prompt(self):
        """Keys and values of the learned prompt. They are kept from the first use, which is a validation."""
        if self.seen is None:
            mixed = self.qkv(self.adapter_prompt.weight.reshape(1, ADAPTER_PROMPT, -1))
            _, key, value = self.parts(mixed)
            per_group = self.shape.heads // self.shape.query_groups
            if self.shape.query_groups != 1:
                key, value = (t.repeat_interleave(per_group, dim=2) for t in (key, value))
            self.seen = tuple(t.reshape(1, -1, ADAPTER_PROMPT, self.shape.head_width) for t in (key, value))
        return self.seen

    @staticmethod
    def prompt_mask(query):
        return torch.ones(query.size(2), ADAPTER_PROMPT, dtype=torch.bool, device=query.device)


class FeedForward(nn.Module):
    """With a gate, or without."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        shape = plan.shape
        self.kind = shape.feed_forward
        self.first = plan.linear(shape.width, shape.feed_forward_width, bias=shape.bias)
        if self.kind != "plain":
            self.second = plan.linear(shape.width, shape.feed_forward_width, bias=shape.bias)
        self.output = plan.linear(shape.feed_forward_width, shape.width, bias=shape.bias)

    def forward(self, x):
        first = self.first(x)
        if self.kind == "plain":
            # Rebound, so that nothing but the gradient holds on to the wide input of the activation.
            first = functional.gelu(first)
            return self.output(first)
        second = self.second(x)
        act = functional.silu if self.kind == "silu" else functional.gelu
        x = act(first) * second
        return self.output(x)


class Block(nn.Module):
    """Attention and feed-forward, one after the other or side by side."""

    def __init__(self, plan: Plan, layer: int) -> None:
        super().__init__()
        shape = self.shape = plan.shape
        self.era = plan.era
        self.norm_1 = plan.norm()
        self.attention = Attention(plan, layer)
        self.norm_2 = None if shape.shared_norm else plan.norm()
        self.feed_forward = FeedForward(plan)
        self.after_attention = plan.norm() if shape.capped else nn.Identity()
        self.after_feed_forward = plan.norm() if shape.capped else nn.Identity()

    def forward(self, x, cos, sin, mask, places):
        normed = self.norm_1(x)
        mixed = self.after_attention(self.attention(normed, cos, sin, mask, places))
        if self.shape.parallel:
            normed = normed if self.shape.shared_norm else self.norm_2(x)
            if self.era == Era.FIRST:
                return x + mixed + self.feed_forward(normed)
            return self.feed_forward(normed) + mixed + x
        x = mixed + x
        return self.after_feed_forward(self.feed_forward(self.norm_2(x))) + x


class Model(nn.Module):
    """The whole model; the embedding and the head are never tied."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan, shape = plan, plan.shape
        self.head = plan.linear(shape.width, shape.vocabulary, bias=shape.head_bias)
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(plan, layer) for layer in range(shape.layers))
        self.norm = plan.norm()
        self.cos = self.sin = self.mask = None
        self.set_length(shape.context, torch.get_default_dtype())

    def set_length(self, length: int, kind: torch.dtype) -> None:
        """The rotary tables of the longest sequence, and what they are made of."""
        turned = int(self.plan.shape.rotary * self.plan.shape.head_width)
        angles = torch.empty(length, turned, device=self.embedding.weight.device, dtype=torch.float32)
        self.cos, self.sin = torch.cos(angles).to(kind), torch.sin(angles).to(kind)

    def set_cache(self, length: int) -> None:
        """Room for the keys and values of one sequence."""
        shape = self.plan.shape
        heads = 1 if shape.query_groups == 1 else shape.heads
        for block in self.blocks:
            sizes = (1, heads, length, shape.head_width)
            pair = [torch.zeros(sizes, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
            block.attention.cache = pair
        self.mask = torch.ones(length, length, device="cuda", dtype=torch.bool).tril()[None, None]

    def forward(self, tokens, places=None, chunk=0):
        if places is None:
            cos, sin, mask = self.cos[: tokens.size(1)], self.sin[: tokens.size(1)], None
        else:
            cos, sin = self.cos.index_select(0, places), self.sin.index_select(0, places)
            mask = self.mask.index_select(2, places)
        x = self.embedding(tokens)
        if self.plan.shape.unit_offset:
            x = x * self.plan.shape.width**0.5
        for block in self.blocks:
            x = block(x, cos, sin, mask, places)
        x = self.norm(x)
        if chunk:
            return [self.head(part) for part in x.split(chunk, dim=1)]
        x = self.head(x)
        if self.plan.shape.capped:
            x = torch.tanh(x / 30.0) * 30.0
        return x
