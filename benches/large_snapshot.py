"""Write a memory snapshot of millions of events with PyTorch itself, on the phantom GPU.

    brimful predict --allow-writes --gpu l4 -- python benches/large_snapshot.py 2495 big.pickle
    /usr/bin/time -v brimful report big.pickle -o report.html

The first number is that of training passes, of about 1,200 events each. Three million events are a file of
250 MB. PyTorch's own viewer (torch/utils/viz/MemoryViz.js, with d3 5) takes the same file by drag and drop.
"""

import sys

import torch

torch.cuda.memory._record_memory_history(max_entries=10_000_000)
layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 6).cuda()
for number in range(int(sys.argv[1])):
    batch = torch.randn(8, 64 + 8 * (number % 5), 256, device="cuda")
    torch.autograd.grad(model(batch).sum(), list(model.parameters()))
torch.cuda.memory._dump_snapshot(sys.argv[2])
# A rehearsal ends with steps of an optimizer.
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    model(torch.randn(8, 64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
