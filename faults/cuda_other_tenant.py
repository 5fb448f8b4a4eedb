"""Trains on a card that others have mostly taken. Dies with torch.OutOfMemoryError, asking for little."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, device="cuda") for _ in range(24)])
for step in range(3):
    model(torch.zeros(2_000, 4096, device="cuda")).sum().backward()
    print(f"step {step}", flush=True)
