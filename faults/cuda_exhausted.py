"""Trains with a batch that a card of 15 GB has no room for. Dies with torch.OutOfMemoryError."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, device="cuda") for _ in range(24)])
for step in range(3):
    model(torch.zeros(100_000, 4096, device="cuda")).sum().backward()
    print(f"step {step}", flush=True)
