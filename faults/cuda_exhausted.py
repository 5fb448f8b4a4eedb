"""Trains with a batch that a card of 15 GB has no room for. Dies with torch.OutOfMemoryError."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, device="cuda") for _ in range(24)])
optimizer = torch.optim.SGD(model.parameters())
for step in range(3):
    loss = model(torch.zeros(100_000, 4096, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}", flush=True)
