"""Ours."""

import torch  # noqa: F401 - the others have imported it when counting begins

import brimful.data as bd

PACKAGES = ("brimful",)

MEMORY = "64MiB"  # room for one batch of images ahead


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
    dataset = bd.tokens(folder / "text/tokens.bin", length=512, dtype="uint16", as_int64=True)
    return load(dataset, batch_size, threads, "4MiB")


def meshes(folder, batch_size, threads):
    """OFF files, parsed and filled."""
    dataset = bd.folder(folder / "meshes", "off").voxelize("mesh", 32).rename("mesh", "voxels")
    return load(dataset, batch_size, threads, "256MiB")  # a mesh may have four million vertices


def load(dataset, batch_size, threads, memory=MEMORY):
    named = {"batch_size": batch_size, "shuffle": True, "seed": 0, "memory": memory, "threads": threads}
    return iter(bd.Loader(dataset, **named))
