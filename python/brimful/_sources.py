"""How datasets are opened: one function for each format, public in `brimful.data`."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from brimful import _data_arguments as given
from brimful import _native
from brimful._dataset import Dataset
from brimful._folders import cache_folder
from brimful._probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from brimful._data_arguments import Path

    Headroom = int | str | None

__all__ = ["arrow", "folder", "hdf5", "lines", "npy", "parquet", "raw", "tar", "tokens"]


def _headroom(headroom: Headroom) -> int | None:
    """Bytes that are free for data; without a word of the user, what the nearest limit leaves."""
    if headroom is None:
        return probe().host.headroom_bytes if sys.platform == "linux" else None
    return given.byte_count("headroom", headroom)


def hdf5(
    path: Path, fields: Mapping[str, str] | Sequence[str] | None = None, *, headroom: Headroom = None
) -> Dataset:
    """Open an HDF5 file whose datasets have one sample per row.

    Args:
        path: The file, or the URL of an object, as everywhere in this module but for `folder`.
        fields: Names of fields and the datasets that they are read from, or the names of datasets; without it
            all datasets of the file that have as many rows as the first.
        headroom: Bytes, or text such as "4GiB", that are free for the file's pages; decides how it is read.
            Without it, what the nearest limit of this machine leaves.
    """
    wanted = None if fields is None else given.named_datasets(fields)
    return Dataset(_native.open_hdf5(os.fspath(path), wanted, _headroom(headroom)))


def arrow(
    paths: Path | Sequence[Path], columns: Sequence[str] | None = None, *, headroom: Headroom = None
) -> Dataset:
    """Open Arrow IPC files, of the file or the stream format, as Hugging Face datasets writes them.

    Several files are one dataset.
    """
    names = None if columns is None else list(columns)
    return Dataset(_native.open_arrow(given.paths(paths), names, _headroom(headroom)))


def parquet(
    paths: Path | Sequence[Path],
    columns: Sequence[str] | None = None,
    *,
    cache: int | str = "256MiB",
    headroom: Headroom = None,
) -> Dataset:
    """Open Parquet files. Several files are one dataset.

    A row of Parquet cannot be read alone: a whole row group is decoded, and kept for the rows that follow.
    In order that is fast; shuffled it is slow unless all row groups fit into the cache, and `reading` says
    whether they do. For data that is read shuffled, convert it to Arrow once.

    Args:
        paths: One file or several with the same columns.
        columns: The columns that are wanted; without it all.
        cache: Bytes, or text such as "1GiB", for decoded row groups. Counts within the loader's `memory`.
        headroom: As for `hdf5`.
    """
    names = None if columns is None else list(columns)
    size = given.byte_count("cache", cache)
    return Dataset(_native.open_parquet(given.paths(paths), names, size, _headroom(headroom)))


def npy(paths: Mapping[str, Path] | Path, *, headroom: Headroom = None) -> Dataset:
    """Open `.npy` files with one sample per row: a file, or files by the names of their fields."""
    return Dataset(_native.open_npy(given.named_paths(paths), _headroom(headroom)))


def raw(
    path: Path, shape: Sequence[int], dtype: str, *, field: str = "data", headroom: Headroom = None
) -> Dataset:
    """Open a file that is nothing but arrays of one shape, one after another, as `numpy.memmap` makes it."""
    each = [given.whole("shape", side) for side in shape]
    named = given.dtype_name(dtype)
    return Dataset(_native.open_raw(field, os.fspath(path), each, named, _headroom(headroom)))


def tokens(  # noqa: PLR0913
    path: Path,
    length: int,
    *,
    dtype: str | None = None,
    as_int64: bool = False,
    documents: bool = False,
    headroom: Headroom = None,
) -> Dataset:
    """Open one long array of tokens and cut it into blocks.

    Args:
        path: A `.npy` file, or one that is nothing but tokens.
        length: Tokens of a block; a shorter rest at the end is left out.
        dtype: The type of the tokens in a file that does not say it: "uint16", unless `documents` say it.
        as_int64: Hand them out as `int64`, which torch takes for indexes.
        documents: Open `path` + ".documents" too, as `pack` writes it, and add two fields of `int32` with a
            number for each token: "document", which document of the block it is in, from 0, and "position",
            its place in that document.
        headroom: As for `hdf5`.
    """
    length = given.whole("length", length, least=1)
    named = None if dtype is None else given.dtype_name(dtype)
    opened = _native.open_tokens(os.fspath(path), length, named, as_int64, documents, _headroom(headroom))
    return Dataset(opened)


def lines(paths: Path | Sequence[Path], *, json: str | None = None, headroom: Headroom = None) -> Dataset:
    """Open text files whose lines are samples; with `json`, this field of the object in each line.

    The files are read once for where their lines begin. Of large ones that is kept in the cache folder
    (`$XDG_CACHE_HOME/brimful/indexes` or `~/.cache/brimful/indexes`), so that the next start has it at once.
    """
    with _looking_through() as report:
        found = _native.open_lines(given.paths(paths), json, _headroom(headroom), _indexes(), report)
    return Dataset(found)


def folder(
    root: Path,
    *extensions: str,
    labels: bool = False,
    split: str | None = None,
    headroom: Headroom = None,
) -> Dataset:
    """Open a folder whose files are samples, in the order of their names.

    Args:
        root: The folder; files of folders below it count too.
        extensions: Take only files with these, such as "jpg"; without them all.
        labels: Add a field "label": the place of a sample's first folder among all, as in `ImageFolder`.
        split: Take only files below `CLASS/SPLIT`, such as "train" in ModelNet.
        headroom: As for `hdf5`.
    """
    wanted = given.extensions(extensions)
    return Dataset(_native.open_folder(os.fspath(root), wanted, labels, split, _headroom(headroom)))


def tar(paths: Path | Sequence[Path], *extensions: str, headroom: Headroom = None) -> Dataset:
    """Open tar files as WebDataset writes them: members that differ in the extension only are one sample.

    The files are looked through once for where their members lie, which is kept as for `lines`.
    """
    wanted = given.extensions(extensions)
    with _looking_through() as report:
        found = _native.open_tar(given.paths(paths), wanted, _headroom(headroom), _indexes(), report)
    return Dataset(found)


def _indexes() -> str | None:
    """Return the folder of what was found by looking through files."""
    cache = cache_folder()
    return None if cache is None else os.path.join(cache, "indexes")  # noqa: PTH118


@contextmanager
def _looking_through() -> Iterator[Callable[[int, int, int, int], None]]:
    """Show on standard error, where that is a terminal, how far the files are looked through."""
    watched = sys.stderr is not None and sys.stderr.isatty()
    drawn = False

    def write(line: str) -> None:
        # A terminal that is gone is no reason to end a training.
        with suppress(OSError):
            sys.stderr.write(f"\r{line}\x1b[K")
            sys.stderr.flush()

    def report(files_done: int, files: int, bytes_done: int, bytes_opened: int) -> None:
        nonlocal drawn
        if not watched:
            return
        drawn = True
        passed = _native.size_text(bytes_done)
        if files == 1:
            line = f"looking through the file: {passed} of {_native.size_text(bytes_opened)}"
        else:
            line = f"looking through {files:,} files: {files_done:,} done, {passed}"
        write(line)

    try:
        yield report
    finally:
        if drawn:
            write("")
