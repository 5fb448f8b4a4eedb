"""Train a GPT-2 on several GPUs: torchrun --nproc-per-node 2 ddp.py. Nothing in here knows of brimful."""

import os

import torch
from gpt2_amp import GPT2
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl")
    model = DistributedDataParallel(GPT2().cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(100):
        tokens = torch.randint(0, 50257, (4, 1025), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
