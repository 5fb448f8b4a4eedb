"""Batches of training data from native threads, in one copy and inside a byte budget.

A dataset is opened, told what to do with its fields, and given to a `Loader`, which is looped over like any
other loader. Reading, decoding, resizing and collating happen in threads without Python's lock; the memory
that the loader holds never exceeds the budget that it is given.

Files may also be objects in a store: `s3://bucket/key`, `gs://bucket/key`, `az://container/key`, `https://`
and `http://`. Credentials and endpoints are taken from the environment (`AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, ...; `AWS_SKIP_SIGNATURE=true` for a bucket that
everybody may read).

Examples:
    >>> import array, tempfile, pathlib
    >>> import brimful.data as bd
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "tokens.bin"
    >>> _ = path.write_bytes(array.array("H", range(1000)).tobytes())
    >>> dataset = bd.tokens(path, length=100, dtype="uint16")
    >>> dataset
    Dataset(10 samples: tokens uint16 100)
    >>> loader = bd.Loader(dataset, batch_size=4, shuffle=True, seed=0, memory="1MiB")
    >>> len(loader)
    3
    >>> sum(batch["tokens"].shape[0] for batch in loader)
    10
"""

from brimful._dataset import Dataset
from brimful._loader import Loader, Statistics
from brimful._pack import Packed, pack
from brimful._sources import arrow, folder, hdf5, lines, npy, parquet, raw, tar, tokens

__all__ = [
    "Dataset",
    "Loader",
    "Packed",
    "Statistics",
    "arrow",
    "folder",
    "hdf5",
    "lines",
    "npy",
    "pack",
    "parquet",
    "raw",
    "tar",
    "tokens",
]
