"""WebDataset: shards read from front to back, in random order, and a buffer in which samples are mixed."""

import numpy as np
import webdataset
from peers import small

PACKAGES = ("webdataset",)


def resize(sample):
    """Before the mixing, so that the buffer holds small samples."""
    image, depth = (np.frombuffer(bytearray(part), kind) for part, kind in zip(sample, KINDS, strict=True))
    return small.small(image.reshape(3, 640, 480)), small.small(depth.reshape(640, 480))


KINDS = (np.uint8, np.float32)


def batches(folder, batch_size, threads):
    shards = sorted(str(path) for path in (folder / "tar").glob("*.tar"))
    dataset = (
        webdataset.WebDataset(shards, shardshuffle=len(shards), seed=0, empty_check=False)
        .to_tuple("image", "depth")
        .map(resize)
        .shuffle(batch_size, initial=batch_size // 2)
        .batched(batch_size, collation_fn=small.together)
    )
    return iter(webdataset.WebLoader(dataset, batch_size=None, num_workers=threads, prefetch_factor=1))
