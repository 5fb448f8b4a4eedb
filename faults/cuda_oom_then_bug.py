"""Catches an out-of-memory error, goes on with less, and dies later of an ordinary mistake."""

import torch

model = torch.nn.Linear(4096, 4096).cuda()
try:
    model(torch.zeros(2_000_000, 4096, device="cuda"))
except torch.OutOfMemoryError:
    print("a batch of 2000000 does not fit", flush=True)
model(torch.zeros(64, 4096, device="cuda")).sum().backward()
print({"loss": 0.25}["accuracy"])
