"""Load batches of training data with native threads, without copies and within a memory budget.

Open a dataset, add ops for its fields, and iterate over a `Loader` as over any other loader. Reading,
decoding, resizing and collating run in threads without the GIL; the memory that the loader holds never
exceeds its budget.

Files can also be in an object store: `s3://bucket/key`, `gs://bucket/key`, `az://container/key`, `https://`
and `http://`. Credentials and endpoints are read from the environment (`AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT`, ...; `AWS_SKIP_SIGNATURE=true` for a public
bucket).

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
from brimful._sources import arrow, folder, hdf5, lines, npy, parquet, prepared, raw, tar, tokens

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
    "prepared",
    "raw",
    "tar",
    "tokens",
]
