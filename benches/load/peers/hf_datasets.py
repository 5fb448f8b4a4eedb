"""Hugging Face datasets: Arrow files that are mapped, read in the Arrow format, which does not copy."""

import torch
from datasets import Dataset
from peers import small
from torch.utils import data

PACKAGES = (
    "datasets",
    "pyarrow",
)


class Rows(data.Dataset):
    """Views of the columns, whose nested lists of fixed length are arrays in memory."""

    def __init__(self, path):
        self.rows = Dataset.from_file(str(path)).with_format("arrow")

    def __len__(self):
        return len(self.rows)

    def __getitems__(self, numbers):
        batch = small.empty_batch(len(numbers))
        for slot, number in enumerate(numbers):
            row = self.rows[number]
            small.write(batch, slot, view(row["image"], (3, 640, 480)), view(row["depth"], (640, 480)))
        return batch


def view(column, shape):
    """The one array of a column with one row."""
    values = column.chunk(0)
    for _ in shape:
        values = values.flatten()
    array = values.to_numpy(zero_copy_only=True)
    # torch warns of arrays that it may not write to, and offers no other way in for them than DLPack.
    return torch.frombuffer(memoryview(array).cast("B"), dtype=DTYPES[array.dtype.name]).reshape(shape)


DTYPES = {"uint8": torch.uint8, "float32": torch.float32}


def as_it_is(batch):
    """`__getitems__` has collated."""
    return batch


def batches(folder, batch_size, threads):
    """Forked workers; the map is one for all."""
    generator = torch.Generator().manual_seed(0)
    named = {"shuffle": True, "generator": generator, "collate_fn": as_it_is}
    named |= {"num_workers": threads, "multiprocessing_context": "fork", "prefetch_factor": 1}
    return iter(data.DataLoader(Rows(folder / "arrow/data.arrow"), batch_size, **named))


class Blocks(data.Dataset):
    """A batch of blocks of tokens in one gather."""

    def __init__(self, path):
        self.rows = Dataset.from_file(str(path)).with_format("arrow")

    def __len__(self):
        return len(self.rows)

    def __getitems__(self, numbers):
        column = self.rows[numbers]["tokens"].combine_chunks()
        values = column.flatten().to_numpy(zero_copy_only=True)
        return {"tokens": torch.from_numpy(values.astype("int64").reshape(len(numbers), -1))}


def text(folder, batch_size, threads):
    """Without workers: a gather is too short to be worth sending elsewhere."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    named = {"shuffle": True, "generator": generator, "collate_fn": as_it_is}
    return iter(data.DataLoader(Blocks(folder / "text/blocks.arrow"), batch_size, **named))
