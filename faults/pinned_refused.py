"""Pins staging buffers of 600 MB each under a limit on address space.

PyTorch rounds pinned memory up to a power of two, so each takes 1 GiB. Dies with a CUDA error that says
"out of memory" while the card is empty.
"""

import torch

model = torch.nn.Linear(64, 64).cuda()
buffers = []
for number in range(16):
    buffers.append(torch.empty(600 << 20, dtype=torch.uint8, pin_memory=True))
    print(f"buffer {number} is pinned", flush=True)
