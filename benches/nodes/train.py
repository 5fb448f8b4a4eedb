"""A small data-parallel training on processors, whose memory grows with the micro-batch.

Every rank writes one line per step; all lines of one start of the training have the same world.
"""

import argparse
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch", type=int, required=True)
parser.add_argument("--accumulation", type=int, required=True)
parser.add_argument("--resume")
parser.add_argument("--steps", type=int, default=24)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--seconds", type=float, default=0.1, help="of one step")
parser.add_argument(
    "--faults", type=pathlib.Path, help="a JSON file: which rank needs too much memory, and when"
)
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
world = [os.urandom(8).hex()]
dist.broadcast_object_list(world, src=0)

torch.manual_seed(7)
model = torch.nn.Linear(16, 1, dtype=torch.float64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
step = 0
if arguments.resume:
    saved = torch.load(arguments.resume, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
faults = json.loads(arguments.faults.read_text()) if arguments.faults and arguments.faults.exists() else []
log = (arguments.out / f"log-{world[0]}-{rank}.jsonl").open("a", buffering=1)


def write(**fields):
    """Write one line of this rank."""
    fields |= {"world": world[0], "rank": rank, "micro_batch": arguments.micro_batch}
    log.write(json.dumps(fields | {"from": arguments.resume, "node": os.environ.get("NODE")}) + "\n")


def run_out_of_memory():
    """Touch memory until the kernel ends this process."""
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 12) * (16 << 8)))


write(step=step, began=True)
while step < arguments.steps:
    step += 1
    optimizer.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for part in range(arguments.accumulation):
        # The samples of a step are the same, however they are divided.
        first = (part * world_size + rank) * arguments.micro_batch
        samples = torch.arange(first, first + arguments.micro_batch, dtype=torch.float64) + 1000 * step
        inputs = torch.sin(samples[:, None] * torch.arange(1, 17, dtype=torch.float64))
        loss = (model(inputs)[:, 0] - torch.cos(samples)).square().sum()
        loss.backward()
        total += loss.detach()
    n_samples = arguments.micro_batch * arguments.accumulation * world_size
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= n_samples
    dist.all_reduce(total)
    optimizer.step()
    write(step=step, loss=(total / n_samples).item())
    for fault in faults:
        if rank in fault["ranks"] and step >= fault["step"] and arguments.micro_batch > fault["above"]:
            run_out_of_memory()
    if step % 4 == 0 and rank == 0:
        part = arguments.out / f"step-{step:04}.pt.part"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part)
        part.rename(arguments.out / f"step-{step:04}.pt")
    time.sleep(arguments.seconds)
write(step=step, ended=True)
dist.destroy_process_group()
