"""Keeps the batches that workers handed over. Each holds an open file (the `file_descriptor` way of sharing).

Dies at the limit on open files with an error of multiprocessing, with memory to spare.
"""

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """Small ones."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8,), float(index))


torch.multiprocessing.set_sharing_strategy("file_descriptor")
kept = list(DataLoader(Samples(), batch_size=4, num_workers=2))
print(len(kept))
