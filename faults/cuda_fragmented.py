"""Keeps the logits of every evaluated batch; they land between the activations, which come and go.

What is free adds up to most of the card, but no piece is as large as the longest batch. Dies with
torch.OutOfMemoryError; with `expandable_segments:True` it would have gone on.
"""

import torch

MIB = 1 << 20


def piece(mib: int) -> torch.Tensor:
    """Take memory of the card."""
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


# The first epoch leaves segments of 1 GiB behind.
activations = [piece(1024) for _ in range(14)]
del activations

# Each batch splits one of them: its activations go, its logits stay.
activations, logits = [], []
for _ in range(14):
    activations.append(piece(800))
    logits.append(piece(200))
del activations

print("the longest batch", flush=True)
longest = piece(1024)
print("went on")
