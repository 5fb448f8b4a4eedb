"""Finds its batch size by trying: catches an out-of-memory error, goes on with less, and ends well."""

import torch

# Forward only: a process that ends right after a backward pass may abort in PyTorch's own threads.
model = torch.nn.Linear(4096, 4096, device="cuda")
batch = 2_000_000
while batch > 1:
    try:
        model(torch.zeros(batch, 4096, device="cuda"))
        break
    except torch.OutOfMemoryError:
        print(f"a batch of {batch} does not fit", flush=True)
        batch //= 4
print(f"trained with a batch of {batch}")
