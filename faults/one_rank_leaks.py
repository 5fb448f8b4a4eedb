"""One of two ranks keeps its gradients. Started by torchrun, which the script does itself.

Dies of the container's limit: the kernel kills rank 1, the launcher ends rank 0 and says `exitcode: -9`.
"""

import os
import sys

import torch
import torch.distributed as dist

if "RANK" not in os.environ:
    arguments = ["--standalone", "--nproc-per-node", "2", __file__]
    os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *arguments])  # noqa: S606

dist.init_process_group("gloo")
rank = dist.get_rank()
kept = []
for step in range(1000):
    gradient = torch.full((1 << 20,), float(step))
    dist.all_reduce(gradient)
    if rank == 1:
        kept.extend([gradient, gradient + 1, gradient + 2, gradient + 3])
    if rank == 0 and step % 10 == 0:
        print(f"step {step}", flush=True)
