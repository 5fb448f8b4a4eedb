"""Train a Llama of 8 billion parameters in bfloat16 on random tokens. Nothing in here knows of brimful."""

import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Turn queries and keys by their positions."""
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


class Attention(nn.Module):
    """Grouped queries: several heads share keys and values."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.queries = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, groups * self.size, bias=False)
        self.values = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.queries(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.keys(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        v = self.values(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        k, v = (
            part.repeat_interleave(self.heads // self.groups, dim=1) for part in (rotate(k, cosine, sine), v)
        )
        attended = functional.scaled_dot_product_attention(rotate(q, cosine, sine), k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and a feed-forward network, each after a norm."""

    def __init__(self, width: int, inner: int, heads: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width)
        self.attention = Attention(width, heads, groups)
        self.norm2 = nn.RMSNorm(width)
        self.feed = FeedForward(width, inner)

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), cosine, sine)
        return x + self.feed(self.norm2(x))


class Llama(nn.Module):
    """The shape of Llama 3 8B: 32 blocks, 32 heads over 8 groups, vocabulary of 128,256."""

    def __init__(
        self, vocabulary: int = 128_256, layers: int = 32, width: int = 4096, inner: int = 14_336
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, inner, heads=32, groups=8) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        size = x.shape[-1] // 32
        powers = torch.arange(0, size, 2, device=x.device) / size
        angles = torch.outer(torch.arange(tokens.shape[1], device=x.device), 500_000.0**-powers)
        angles = torch.cat((angles, angles), dim=-1)
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = checkpoint(block, x, cosine, sine, use_reentrant=False)
        return self.head(self.norm(x))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=False)
    for step in range(arguments.steps):
        tokens = torch.randint(0, 128_256, (arguments.batch_size, arguments.context + 1), device="cuda")
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
