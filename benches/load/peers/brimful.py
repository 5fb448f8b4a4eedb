"""Ours."""

import brimful.data as bd

PACKAGES = ("brimful",)

MEMORY = "256MiB"


def batches(folder, batch_size, threads):
    """The HDF5 file."""
    dataset = bd.hdf5(folder / "nyu.h5", {"image": "images", "depth": "depths"})
    return load(dataset.resize("image", 224).resize("depth", 224), batch_size, threads)


def batches_arrow(folder, batch_size, threads):
    """The Arrow file of Hugging Face datasets."""
    dataset = bd.arrow([folder / "arrow/data.arrow"])
    return load(dataset.resize("image", 224).resize("depth", 224), batch_size, threads)


def text(folder, batch_size, threads):
    """Blocks of one long array; an embedding takes 64-bit numbers, as the other loaders give them."""
    dataset = bd.tokens(folder / "text/tokens.bin", dtype="uint16", length=512)
    for batch in load(dataset, batch_size, threads):
        yield {"tokens": batch["tokens"].long()}


def meshes(folder, batch_size, threads):
    dataset = bd.folder(folder / "meshes", "*.off").voxelize("mesh", 32)
    for batch in load(dataset, batch_size, threads):
        yield {"voxels": batch["mesh"]}


def load(dataset, batch_size, threads):
    named = {"batch_size": batch_size, "shuffle": True, "seed": 0, "memory": MEMORY, "threads": threads}
    return iter(bd.Loader(dataset, **named))
