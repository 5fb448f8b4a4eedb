"""torch.utils.data.DataLoader over blocks of tokens: a Python list, and a map that gathers each batch."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BLOCK = 512
PART = 10  # of the tokens, every tenth block fits a Python list


def mapped(folder):
    return np.memmap(folder / "text/tokens.bin", np.uint16, "r").reshape(-1, BLOCK)


class Mapped(Dataset):
    """Gathers a batch with one call of NumPy."""

    def __init__(self, folder):
        self.blocks = mapped(folder)

    def __len__(self):
        return len(self.blocks)

    def __getitems__(self, numbers):
        return {"tokens": torch.from_numpy(self.blocks[numbers].astype(np.int64))}


class Listed(Dataset):
    """Blocks as lists of Python numbers, as a tokenizer gives them."""

    def __init__(self, folder):
        self.blocks = mapped(folder)[::PART].tolist()

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, number):
        return torch.tensor(self.blocks[number])


def as_it_is(batch):
    """`__getitems__` has collated."""
    return batch


def stacked(blocks):
    return {"tokens": torch.stack(blocks)}


def load(dataset, batch_size, collate, **named):
    torch.set_num_threads(1)
    named["generator"] = torch.Generator().manual_seed(0)
    return iter(DataLoader(dataset, batch_size, shuffle=True, collate_fn=collate, **named))


def text_gather(folder, batch_size, threads):
    """Without workers: a gather is too short to be worth sending elsewhere."""
    return load(Mapped(folder), batch_size, as_it_is)


def text_gather_workers(folder, batch_size, threads):
    """The same in forked workers."""
    return load(Mapped(folder), batch_size, as_it_is, num_workers=threads, multiprocessing_context="fork")


def text_list(folder, batch_size, threads):
    """A list in forked workers, each of which comes to own it as it counts references."""
    return load(Listed(folder), batch_size, stacked, num_workers=threads, multiprocessing_context="fork")
