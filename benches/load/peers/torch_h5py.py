"""torch.utils.data.DataLoader over the HDF5 file, which every worker opens for itself."""

import h5py
import numpy as np
import torch
from peers import small
from torch.utils.data import DataLoader, Dataset

PACKAGES = ("h5py",)


class Rows(Dataset):
    """Reads one sample at a time into the same two buffers."""

    def __init__(self, path):
        self.path, self.file = path, None
        with h5py.File(path) as file:
            self.n = len(file["images"])

    def __len__(self):
        return self.n

    def __getitems__(self, numbers):
        if self.file is None:  # a file that is open across a fork is not safe
            self.file = h5py.File(self.path)
            self.image = np.empty(self.file["images"].shape[1:], np.uint8)
            self.depth = np.empty(self.file["depths"].shape[1:], np.float32)
        images, depths = self.file["images"], self.file["depths"]
        batch = small.empty_batch(len(numbers))
        for slot, number in enumerate(numbers):
            images.read_direct(self.image, np.s_[number])
            depths.read_direct(self.depth, np.s_[number])
            small.write(batch, slot, self.image, self.depth)
        return batch


def as_it_is(batch):
    """`__getitems__` has collated."""
    return batch


def batches(folder, batch_size, threads):
    """Forked workers."""
    generator = torch.Generator().manual_seed(0)
    named = {"shuffle": True, "generator": generator, "collate_fn": as_it_is}
    named |= {"num_workers": threads, "multiprocessing_context": "fork", "prefetch_factor": 1}
    return iter(DataLoader(Rows(folder / "nyu.h5"), batch_size, **named))
