"""A DataLoader whose workers each hold the dataset once more, and what they decoded of it.

The samples are Python objects: under fork each worker's reads copy them page by page, under spawn and
forkserver each worker gets them pickled. The cache of decoded samples was meant to be one; every worker
fills its own. Dies of the container's limit: the kernel kills a worker, and the main process says it
"exited unexpectedly".

    workers_copy.py fork|spawn|forkserver
"""

import multiprocessing
import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """Some 60 MB of Python objects."""

    def __init__(self) -> None:
        self.records = [{"id": number, "text": f"sample {number}" * 8} for number in range(150_000)]
        self.decoded = {}

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> torch.Tensor:
        record = self.records[index]
        self.decoded[index] = torch.full((64 << 10,), float(record["id"]))
        return self.decoded[index].mean()


if __name__ == "__main__":
    multiprocessing.set_forkserver_preload(["torch"])
    loader = DataLoader(
        Samples(), batch_size=16, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1]
    )
    for step, batch in enumerate(loader):
        if step % 20 == 0:
            print(f"step {step}, mean {batch.mean():.1f}", flush=True)
