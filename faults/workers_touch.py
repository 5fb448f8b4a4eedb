"""A DataLoader whose workers only read a list of Python objects, all of it, before the first batch.

Under fork the pages are shared until a reference count is written, which every read does: each worker ends
with a copy. Dies of the container's limit; the kernel takes the largest process, which is the main one (what
it takes after the fork is its own), without a word.
"""

import torch
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    """Some 90 MB of small Python objects."""

    def __init__(self) -> None:
        self.words = [f"word {number}" for number in range(1_200_000)]

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(sum(len(word) for word in self.words) + index)


batches = iter(DataLoader(Samples(), batch_size=8, num_workers=3))
gradients = bytearray(48 << 20)
for _ in batches:
    pass
