"""Workers share a cache of 128 MB in a /dev/shm of 64 MB, the default of container engines.

Making it succeeds, since nothing is taken yet. Dies when a worker writes to a page that the full /dev/shm
cannot give: SIGBUS in the worker, which "exited unexpectedly".
"""

from multiprocessing.shared_memory import SharedMemory

from torch.utils.data import DataLoader, Dataset

SAMPLE = 1 << 20


class Cached(Dataset):
    """Decoded samples of 1 MiB, kept for all workers."""

    def __init__(self, cache: SharedMemory) -> None:
        self.cache = cache

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> int:
        self.cache.buf[index * SAMPLE : (index + 1) * SAMPLE] = bytes([index]) * SAMPLE
        return index


cache = SharedMemory(create=True, size=128 * SAMPLE)
try:
    for _ in DataLoader(Cached(cache), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        pass
finally:
    cache.close()
    cache.unlink()
