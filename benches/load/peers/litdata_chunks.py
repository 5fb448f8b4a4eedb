"""litdata over its own chunks, which are on the disk already."""

from litdata import StreamingDataLoader, StreamingDataset
from peers import small

PACKAGES = ("litdata",)


def resize(sample):
    return {name: small.small(array) for name, array in sample.items()}


def batches(folder, batch_size, threads):
    dataset = StreamingDataset(
        str(folder / "litdata"), shuffle=True, seed=0, drop_last=False, transform=resize, max_pre_download=1
    )
    named = {"num_workers": threads, "prefetch_factor": 1, "collate_fn": small.together}
    return iter(StreamingDataLoader(dataset, batch_size=batch_size, **named))
