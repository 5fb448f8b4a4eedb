"""What the loaders that resize with torch share: the work itself, and a batch to write into."""

import numpy as np
import torch
from torch.nn import functional

SIDE = 224


def small(array):
    """An array of height and width, or of channels before them, at 224 x 224; uint8 stays uint8.

    It may be a view of a map or of somebody's buffer: it is read once and not copied.
    """
    planes = torch.from_numpy(array) if isinstance(array, np.ndarray) else array
    leading = (1, 1) if planes.ndim == 2 else (1,)
    resized = functional.interpolate(
        planes.reshape(*leading, *planes.shape), (SIDE, SIDE), mode="bilinear", antialias=True
    )
    return resized.reshape(*planes.shape[:-2], SIDE, SIDE)


def empty_batch(n):
    """Room for so many samples."""
    return {
        "image": torch.empty(n, 3, SIDE, SIDE, dtype=torch.uint8),
        "depth": torch.empty(n, SIDE, SIDE),
    }


def write(batch, slot, image, depth):
    """Resize one sample into its place: a batch that is filled in place needs no stacking."""
    batch["image"][slot] = small(image)
    batch["depth"][slot] = small(depth)


def together(samples):
    """A batch of samples that are resized already, as dictionaries or pairs."""
    if isinstance(samples[0], dict):
        return {name: torch.stack([sample[name] for sample in samples]) for name in ("image", "depth")}
    images, depths = zip(*samples, strict=True)
    return {"image": torch.stack(images), "depth": torch.stack(depths)}


def mapped(folder):
    """Both arrays as maps. Copy-on-write, as torch warns of arrays that it may not write to."""
    return tuple(np.load(folder / "npy" / name, mmap_mode="c") for name in ("images.npy", "depths.npy"))


def shuffled(n):
    """The order of the epoch."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()


def groups(numbers, size):
    """Split a list into batches; the last one may be smaller."""
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]
