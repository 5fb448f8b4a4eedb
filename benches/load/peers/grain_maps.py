"""Grain over a source that maps the arrays, with its threads; processes would each hold their own batches."""

import grain
import torch
from peers import small

PACKAGES = ("grain",)


class Maps(grain.sources.RandomAccessDataSource):
    """One sample is two views of the maps."""

    def __init__(self, folder):
        self.images, self.depths = small.mapped(folder)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        return {"image": self.images[number], "depth": self.depths[number]}


def resize(sample):
    return {name: small.small(array).numpy() for name, array in sample.items()}


def batches(folder, batch_size, threads):
    torch.set_num_threads(1)
    # The buffer is in samples: enough for the threads to go on while a batch is put together.
    reading = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=batch_size // 4)
    dataset = grain.MapDataset.source(Maps(folder)).shuffle(seed=0).map(resize)
    for batch in dataset.to_iter_dataset(reading).batch(batch_size):
        yield {name: torch.from_numpy(array) for name, array in batch.items()}
