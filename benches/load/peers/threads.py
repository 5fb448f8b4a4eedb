"""Python's own threads over a map: no library but NumPy and torch, whose resize runs without the GIL."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import torch
from peers import small

AHEAD = 2  # batches that are begun beside the one that is used
STRIDE = 8  # samples of one task: few enough to end a batch evenly, enough that the queue costs nothing


def batches(folder, batch_size, threads):
    """Tasks of a few samples that write into their places of a batch."""
    torch.set_num_threads(1)
    images, depths = small.mapped(folder)

    def fill(batch, numbers, first):
        for slot, number in enumerate(numbers, first):
            small.write(batch, slot, images[number], depths[number])

    def begin(numbers):
        batch = small.empty_batch(len(numbers))
        starts = range(0, len(numbers), STRIDE)
        return batch, [pool.submit(fill, batch, numbers[at : at + STRIDE], at) for at in starts]

    left = iter(small.groups(small.shuffled(len(images)), batch_size))
    with ThreadPoolExecutor(threads) as pool:
        begun = deque(begin(numbers) for numbers in islice(left, AHEAD))
        while begun:
            batch, tasks = begun.popleft()
            for task in tasks:
                task.result()
            del tasks
            begun.extend(begin(numbers) for numbers in islice(left, 1))
            yield batch
