"""Asks torch for 200 GB on the host at once. Dies with `DefaultCPUAllocator: can't allocate memory`."""

import torch

replay = torch.empty(50_000_000_000)
print(replay.numel())
