"""A DataLoader worker reads address 0, as a broken decoder does. The main process says "killed by signal"."""

import ctypes

from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """The eleventh file breaks the decoder."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        if index == 10:
            ctypes.string_at(0)
        return index


for _ in DataLoader(Images(), batch_size=4, num_workers=2):
    pass
