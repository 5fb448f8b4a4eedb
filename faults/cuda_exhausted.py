"""Trains with a batch that a card of 15 GB has no room for. Dies with torch.OutOfMemoryError."""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, device="cuda") for _ in range(24)])
optimizer = torch.optim.AdamW(model.parameters())
for batch in (1_000, 10_000, 100_000):
    print(f"batch of {batch}", flush=True)
    loss = model(torch.zeros(batch, 4096, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
