"""torch.utils.data.DataLoader over arrays that are in memory as a whole."""

import h5py
import torch
from peers import small
from torch.utils.data import DataLoader, Dataset

PACKAGES = ("h5py",)


class InMemory(Dataset):
    """The whole file; a batch is fetched at once and filled in place."""

    def __init__(self, folder, *, shared):
        with h5py.File(folder / "nyu.h5") as file:
            self.images = read(file["images"], torch.uint8, shared=shared)
            self.depths = read(file["depths"], torch.float32, shared=shared)

    def __len__(self):
        return len(self.images)

    def __getitems__(self, numbers):
        batch = small.empty_batch(len(numbers))
        for slot, number in enumerate(numbers):
            small.write(batch, slot, self.images[number], self.depths[number])
        return batch


def read(dataset, dtype, *, shared):
    """Read into a tensor; a shared one is not copied into each worker."""
    tensor = torch.empty(dataset.shape, dtype=dtype)
    if shared:
        tensor.share_memory_()
    dataset.read_direct(tensor.numpy())
    return tensor


def as_it_is(batch):
    """`__getitems__` has collated."""
    return batch


def load(dataset, batch_size, **named):
    generator = torch.Generator().manual_seed(0)
    named = {"shuffle": True, "generator": generator, "collate_fn": as_it_is, **named}
    return iter(DataLoader(dataset, batch_size, **named))


def batches(folder, batch_size, threads):
    """Without workers, in one thread: torch's own threads wait by spinning, which is processor time."""
    torch.set_num_threads(1)
    return load(InMemory(folder, shared=False), batch_size)


def batches_spawn(folder, batch_size, threads):
    """With spawned workers, which share one copy of the data."""
    named = {"num_workers": threads, "multiprocessing_context": "spawn", "prefetch_factor": 1}
    return load(InMemory(folder, shared=True), batch_size, **named)
