"""Train a GPT-2 of 124 million parameters on random tokens, in mixed precision.

Nothing in here knows of brimful.
"""

import argparse

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward network, each after a layer norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.feed(self.norm2(x)))


class GPT2(nn.Module):
    """Token and position embeddings, twelve blocks, tied head."""

    def __init__(
        self, vocabulary: int = 50257, context: int = 1024, layers: int = 12, width: int = 768
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT2(context=arguments.context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    scaler = torch.amp.GradScaler(device)
    for step in range(arguments.steps):
        for _ in range(arguments.accumulate):
            tokens = torch.randint(0, 50257, (arguments.batch_size, arguments.context + 1), device=device)
            with torch.autocast(device, dtype=torch.float16):
                logits = model(tokens[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            scaler.scale(loss / arguments.accumulate).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
