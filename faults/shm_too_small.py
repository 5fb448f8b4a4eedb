"""Workers hand over batches of 24 MB through a /dev/shm of 64 MB, the default of container engines.

Dies when a worker asks for more than is left: "No space left on device", which is not the disk.
"""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Images of 1.5 MB."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 256, 512), float(index))


for _ in DataLoader(
    Images(), batch_size=16, num_workers=2, prefetch_factor=2, multiprocessing_context="fork"
):
    time.sleep(0.2)
