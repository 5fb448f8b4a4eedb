
import torch
from torch import nn
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(100):
    x = torch.randn(32, 1024, device="cpu")
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
