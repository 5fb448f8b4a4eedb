"""Catches an out-of-memory error, goes on with less, and dies later of an ordinary mistake."""

import torch

# Forward only: a process that ends right after a backward pass may abort in PyTorch's own threads.
model = torch.nn.Linear(4096, 4096, device="cuda")
try:
    model(torch.zeros(2_000_000, 4096, device="cuda"))
except torch.OutOfMemoryError:
    print("a batch of 2000000 does not fit", flush=True)
model(torch.zeros(64, 4096, device="cuda"))
print({"loss": 0.25}["accuracy"])
