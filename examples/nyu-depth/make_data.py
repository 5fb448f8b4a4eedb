"""Write made-up images with depths, in the shape of NYU Depth V2, to one HDF5 file."""

import argparse

import h5py
import numpy as np

HEIGHT, WIDTH = 640, 480
SLICE = 16


def smooth(random: np.random.Generator, n: int, channels: int) -> np.ndarray:
    """Return random fields between 0 and 1 that change slowly over the image."""
    grid = random.random((n, channels, 6, 5), dtype=np.float32)
    return stretch(6, HEIGHT) @ grid @ stretch(5, WIDTH).T


def stretch(few: int, many: int) -> np.ndarray:
    """Return the matrix that draws straight lines between `few` values at `many` places."""
    places = np.linspace(0, few - 1, many, dtype=np.float32)[:, None]
    return np.maximum(0, 1 - np.abs(places - np.arange(few, dtype=np.float32)))


def make_samples(random: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images and depths: what is far is dark, under paint and noise that say nothing."""
    nearness = smooth(random, n, 1)
    paint = smooth(random, n, 3)
    images = 160 * nearness + 60 * paint
    images += random.integers(0, 32, images.shape, dtype=np.uint8)
    return images.astype(np.uint8), (10 - 9 * nearness[:, 0]).astype(np.float32)


def main() -> None:
    """Write the file slice by slice, so that it never is in memory as a whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1449)
    parser.add_argument("--output", default="nyu.h5")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    with h5py.File(arguments.output, "w") as file:
        images = file.create_dataset("images", (arguments.samples, 3, HEIGHT, WIDTH), "uint8")
        depths = file.create_dataset("depths", (arguments.samples, HEIGHT, WIDTH), "float32")
        for start in range(0, arguments.samples, SLICE):
            stop = min(start + SLICE, arguments.samples)
            images[start:stop], depths[start:stop] = make_samples(random, stop - start)
    print(f"{arguments.samples} samples in {arguments.output}")


if __name__ == "__main__":
    main()
