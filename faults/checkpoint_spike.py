"""Trains inside its limit, then saves: a clone of the weights, and the clone serialized in memory.

Dies of the container's limit while it saves; the kernel kills it, and nothing is printed.
"""

import io

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(3)])
for step in range(3):
    model(torch.zeros(4, 4096)).sum().backward()
    print(f"step {step}", flush=True)

print("saving", flush=True)
snapshot = {name: weight.clone() for name, weight in model.state_dict().items()}
checkpoint = io.BytesIO()
torch.save(snapshot, checkpoint)
print(f"saved {checkpoint.tell()} bytes")
