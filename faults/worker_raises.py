"""A DataLoader worker meets a sample that it cannot read. Nothing about memory."""

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """The eleventh file is broken."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 10:
            raise ValueError("image 10 has 2 channels, expected 3")
        return torch.zeros(8)


for _ in DataLoader(Images(), batch_size=4, num_workers=2):
    pass
