"""Functions that open datasets, one per format; public in `brimful.data`."""

from __future__ import annotations

import json as _json
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from brimful import _data_arguments as given
from brimful import _native
from brimful._dataset import Dataset
from brimful._errors import InputError
from brimful._folders import cache_folder
from brimful._probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from brimful._data_arguments import Path

    Headroom = int | str | None

__all__ = ["arrow", "folder", "hdf5", "lines", "npy", "parquet", "prepared", "raw", "tar", "tokens"]


def _headroom(headroom: Headroom) -> int | None:
    """Return the bytes available for data; by default the headroom of this machine."""
    if headroom is None:
        return probe().host.headroom_bytes if sys.platform == "linux" else None
    return given.byte_count("headroom", headroom)


def hdf5(
    path: Path, fields: Mapping[str, str] | Sequence[str] | None = None, *, headroom: Headroom = None
) -> Dataset:
    """Open an HDF5 file whose datasets have one sample per row.

    Args:
        path: Path of the file, or URL of an object; all functions of this module except `folder` accept URLs.
        fields: Mapping from field names to datasets, or a list of datasets; by default all datasets of the
            file with as many rows as the first.
        headroom: Memory available for the page cache of the file, in bytes or as a string such as "4GiB";
            decides how the file is read. By default the headroom of this machine.
    """
    wanted = None if fields is None else given.named_datasets(fields)
    return Dataset(_native.open_hdf5(os.fspath(path), wanted, _headroom(headroom)))


def arrow(
    paths: Path | Sequence[Path], columns: Sequence[str] | None = None, *, headroom: Headroom = None
) -> Dataset:
    """Open Arrow IPC files in the file or stream format, for example from Hugging Face datasets.

    Several files form one dataset.
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
    """Open Parquet files. Several files form one dataset.

    A single row cannot be read from Parquet: brimful decodes the whole row group and caches it for the next
    rows. Sequential reading is fast; shuffled reading is slow unless all row groups fit in the cache, which
    `reading` reports. To read data shuffled, convert it to Arrow once.

    Args:
        paths: One file or several with the same columns.
        columns: Columns to read; by default all.
        cache: Cache size for decoded row groups, in bytes or as a string such as "1GiB". Counts against the
            `memory` of the loader.
        headroom: As for `hdf5`.
    """
    names = None if columns is None else list(columns)
    size = given.byte_count("cache", cache)
    return Dataset(_native.open_parquet(given.paths(paths), names, size, _headroom(headroom)))


def npy(paths: Mapping[str, Path] | Path, *, headroom: Headroom = None) -> Dataset:
    """Open `.npy` files with one sample per row: one file, or a mapping from field names to files."""
    return Dataset(_native.open_npy(given.named_paths(paths), _headroom(headroom)))


def raw(
    path: Path, shape: Sequence[int], dtype: str, *, field: str = "data", headroom: Headroom = None
) -> Dataset:
    """Open a file that contains only arrays of one shape, for example from `numpy.memmap`."""
    each = [given.whole("shape", side) for side in shape]
    named = given.dtype_name(dtype)
    return Dataset(_native.open_raw(field, os.fspath(path), each, named, _headroom(headroom)))


def tokens(  # noqa: PLR0913
    paths: Path | Sequence[Path],
    length: int,
    *,
    dtype: str | None = None,
    as_int64: bool = False,
    documents: bool = False,
    headroom: Headroom = None,
) -> Dataset:
    """Open one long array of tokens and split it into blocks.

    Args:
        paths: A `.npy` file, or a file that contains only tokens; several files form one dataset.
        length: Tokens per block; a shorter block at the end is dropped.
        dtype: The dtype of the tokens, if the file does not specify it; by default "uint16", or the dtype in
            the `documents` file.
        as_int64: Return tokens as `int64`, which torch requires for indexing.
        documents: Also open each file's path + ".documents", which `pack` writes, and add two `int32` fields
            with one value per token: "document", the index of its document in the block, from 0, and
            "position", its position in that document.
        headroom: As for `hdf5`.
    """
    length = given.whole("length", length, least=1)
    named = None if dtype is None else given.dtype_name(dtype)
    files = given.paths(paths)
    opened = _native.open_tokens(files, length, named, as_int64, documents, _headroom(headroom))
    return Dataset(opened)


def prepared(
    path: Path, *, as_int64: bool = False, documents: bool = False, headroom: Headroom = None
) -> Dataset:
    """Open a dataset that `brimful.prepare` or `brimful prepare` wrote.

    Its samples are shuffled already; a `Loader` without `shuffle` reads the files from beginning to end.

    Args:
        path: The directory of the dataset, or its prefix in an object store such as `s3://bucket/shards`.
        as_int64: Return tokens as `int64`, which torch requires for indexing.
        documents: Add the fields "document" and "position" to tokens; see `tokens`. Each block begins a new
            document.
        headroom: As for `hdf5`.
    """
    folder = os.fspath(path)
    manifest = _manifest(folder)
    try:
        shards = _shards(folder, manifest["shards"])
        field = manifest["fields"][0]
        kind, length, dtype = manifest["format"], field["shape"][:1], field["dtype"]
    except (KeyError, IndexError, TypeError):
        raise InputError(f"the manifest of {folder} is damaged") from None
    if kind == "arrow":
        if as_int64 or documents:
            raise InputError(f"{folder} has no tokens; `as_int64` and `documents` are for tokens")
        return arrow(shards, headroom=headroom)
    return tokens(shards, length[0], dtype=dtype, as_int64=as_int64, documents=documents, headroom=headroom)


def _shards(folder: str, shards: list[dict[str, Any]]) -> list[str]:
    """Return the paths of all shards, which must be there and whole."""
    names = [shard["file"] for shard in shards]
    elsewhere = next((name for name in names if os.path.basename(name) != name), None)  # noqa: PTH119
    if elsewhere is not None:
        raise InputError(f"the manifest of {folder} names a file elsewhere: {elsewhere}")
    paths = [f"{folder.rstrip('/')}/{name}" for name in names]
    for path, shard, found in zip(paths, shards, _native.file_sizes(folder, names), strict=True):
        if found != shard["bytes"]:
            raise InputError(
                f"{path} is damaged: expected {shard['bytes']} bytes, found {found}",
                ["prepare the dataset again, in another directory"],
            )
    return paths


def _manifest(folder: str) -> dict[str, Any]:
    text = _native.read_manifest(folder)
    if text is None:
        raise InputError(
            f"no prepared dataset in {folder}: manifest.json is missing",
            ["if `brimful prepare` was interrupted, run the same command again to finish it"],
        )
    try:
        manifest = _json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"manifest.json in {folder} is damaged: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("version") != 1:
        raise InputError(
            f"manifest.json in {folder} was written by another version of brimful", ["upgrade brimful"]
        )
    return manifest


def lines(paths: Path | Sequence[Path], *, json: str | None = None, headroom: Headroom = None) -> Dataset:
    """Open text files with one sample per line; with `json`, that field of the JSON object in each line.

    The files are indexed once. Indexes of large files are cached in `$XDG_CACHE_HOME/brimful/indexes` or
    `~/.cache/brimful/indexes`.
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
    """Open a directory whose files are samples, ordered by name.

    Args:
        root: The directory; subdirectories are included.
        extensions: Use only files with these extensions, for example "jpg"; by default all files.
        labels: Add a field "label": the index of the top-level subdirectory of a sample, as in `ImageFolder`.
        split: Use only files in `CLASS/SPLIT`, for example "train" in ModelNet.
        headroom: As for `hdf5`.
    """
    wanted = given.extensions(extensions)
    return Dataset(_native.open_folder(os.fspath(root), wanted, labels, split, _headroom(headroom)))


def tar(paths: Path | Sequence[Path], *extensions: str, headroom: Headroom = None) -> Dataset:
    """Open tar files in WebDataset format: members that differ only in the extension form one sample.

    The files are indexed once, and the indexes are cached as for `lines`.
    """
    wanted = given.extensions(extensions)
    with _looking_through() as report:
        found = _native.open_tar(given.paths(paths), wanted, _headroom(headroom), _indexes(), report)
    return Dataset(found)


def _indexes() -> str | None:
    """Return the directory for indexes."""
    cache = cache_folder()
    return None if cache is None else os.path.join(cache, "indexes")  # noqa: PTH118


@contextmanager
def _looking_through() -> Iterator[Callable[[int, int, int, int], None]]:
    """Show the progress of indexing on standard error, if it is a terminal."""
    watched = sys.stderr is not None and sys.stderr.isatty()
    drawn = False

    def write(line: str) -> None:
        # A closed terminal must not end the training run.
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
            line = f"indexing the file: {passed} of {_native.size_text(bytes_opened)}"
        else:
            line = f"indexing {files:,} files: {files_done:,} done, {passed}"
        write(line)

    try:
        yield report
    finally:
        if drawn:
            write("")
