"""mosaicml-streaming over MDS shards that are on the disk already."""

from peers import small
from streaming import StreamingDataset
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

PACKAGES = ("mosaicml-streaming",)


class Resized(StreamingDataset):
    """Resizes in the worker."""

    def __getitem__(self, at):
        sample = super().__getitem__(at)
        return small.small(sample["image"]), small.small(sample["depth"])


def batches(folder, batch_size, threads):
    clean_stale_shared_memory()  # what an earlier run left that was killed
    dataset = Resized(local=str(folder / "mds"), shuffle=True, shuffle_seed=0, batch_size=batch_size)
    named = {"num_workers": threads, "prefetch_factor": 1, "collate_fn": small.together}
    return iter(DataLoader(dataset, batch_size, **named))
