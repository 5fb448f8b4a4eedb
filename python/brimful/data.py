"""Batches of training data from native threads, in one copy and inside a byte budget.

A dataset is opened, told what to do with its fields, and given to a `Loader`, which is looped over like any
other loader. Reading, decoding, resizing and collating happen in threads without Python's lock; the memory that
the loader holds never exceeds the budget that it is given.

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

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brimful import _native
from brimful._errors import InputError
from brimful._pack import Packed, pack
from brimful._probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Path = str | os.PathLike[str]
    Headroom = int | str | None

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
    "raw",
    "tar",
    "tokens",
]

_STATE_VERSION = 1


class Dataset:
    """Samples of named fields, and what is done with each.

    Every method gives a new dataset; the old one stays as it is.
    What a field is, and whether an op fits it, is known before any sample is read.
    """

    def __init__(self, native: _native.Dataset, functions: tuple[Callable[[Any], Any], ...] = ()) -> None:
        """Wrap what the functions of this module open."""
        self._native = native
        self._functions = functions

    def __len__(self) -> int:
        """Tell how many samples there are."""
        return len(self._native)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        fields = ", ".join(f"{name} {kind}" for name, kind in self._native.fields())
        return f"Dataset({len(self)} samples: {fields})"

    @property
    def fields(self) -> dict[str, str]:
        """The fields and what each of them is."""
        return dict(self._native.fields())

    @property
    def reading(self) -> str:
        """How the bytes are read (mapped, read or direct), and why."""
        return self._native.reading()

    def _with(self, native: _native.Dataset) -> Dataset:
        if self._functions:
            raise InputError("expected ops before `map`, found one after it", ["put `map` last"])
        return Dataset(native)

    def decode(self, field: str, *, most_pixels: int = 64 << 20) -> Dataset:
        """Decode JPEG, PNG and WebP files to `uint8` of height x width x 3."""
        return self._with(self._native.decode(field, most_pixels))

    def resize(self, field: str, size: int | tuple[int, int], *, filter: str = "bilinear") -> Dataset:  # noqa: A002
        """Resize the last two sides, with antialiasing.

        Args:
            field: An array of `uint8` or `float32`.
            size: Height and width, or one number for both.
            filter: "bilinear" or "bicubic".
        """
        height, width = (size, size) if isinstance(size, int) else size
        return self._with(self._native.resize(field, height, width, filter))

    def crop(self, field: str, size: int | tuple[int, int], *, random: bool = False) -> Dataset:
        """Cut the last two sides to a size, from the center or from anywhere."""
        height, width = (size, size) if isinstance(size, int) else size
        return self._with(self._native.crop(field, height, width, random))

    def flip(self, field: str, *, probability: float = 0.5) -> Dataset:
        """Turn left and right around, for some samples."""
        return self._with(self._native.flip(field, probability))

    def transpose(self, field: str, axes: Sequence[int]) -> Dataset:
        """Put the sides into another order, as NumPy's function of this name does."""
        return self._with(self._native.transpose(field, list(axes)))

    def normalize(
        self, field: str, mean: Sequence[float], std: Sequence[float], *, scale: float | None = None
    ) -> Dataset:
        """Give `(value * scale - mean) / std` per channel as `float32`.

        Args:
            field: An array whose first side is the channels.
            mean: One number per channel.
            std: One number per channel.
            scale: 1/255 for `uint8` and 1 otherwise, unless it is given.
        """
        return self._with(self._native.normalize(field, list(mean), list(std), scale))

    def cast(self, field: str, dtype: str) -> Dataset:
        """Change the type of the elements, such as to "float32"; what does not fit is cut to the nearest."""
        return self._with(self._native.cast(field, dtype))

    def voxelize(self, field: str, size: int, *, dtype: str = "float32") -> Dataset:
        """Turn meshes into grids of `size` x `size` x `size` with 1 where the surface is."""
        return self._with(self._native.voxelize(field, size, dtype))

    def tokenize(  # noqa: PLR0913
        self,
        field: str,
        tokenizer: Path,
        length: int,
        *,
        pad_id: int | None = None,
        mask: str | None = None,
        special_tokens: bool = True,
        most_bytes: int | None = None,
    ) -> Dataset:
        """Turn text into `length` tokens of `int64`: cut at the end, or filled up there.

        The tokens are those of the library `tokenizers` with its truncation and padding to that length.

        Args:
            field: Text in UTF-8.
            tokenizer: A `tokenizer.json`, or a folder that has one.
            length: Tokens of every sample, special ones included.
            pad_id: What to fill up with; without it the tokenizer's own padding, or 0 where it has none.
            mask: The name of a second field, which is 1 where there are tokens and 0 where it is filled up.
            special_tokens: Put the tokenizer's special tokens around every text.
            most_bytes: Longer texts are cut before they are looked at, which bounds memory: a thread may take
                400 times as much. Without it, 32 bytes for each token, but at least 4 KiB and at most 1 MiB.
        """
        return self._with(
            self._native.tokenize(
                field,
                os.fspath(tokenizer),
                length,
                pad_id=pad_id,
                special_tokens=special_tokens,
                most_bytes=most_bytes,
                mask=mask,
            )
        )

    def copy(self, field: str, to: str) -> Dataset:
        """Give a field a second time under another name, as it is now."""
        return self._with(self._native.copy(field, to))

    def select(self, *fields: str) -> Dataset:
        """Keep these fields only."""
        return self._with(self._native.keep(list(fields)))

    def rename(self, field: str, to: str) -> Dataset:
        """Call a field something else."""
        return self._with(self._native.rename(field, to))

    def map(self, function: Callable[[Any], Any]) -> Dataset:
        """Put a Python function at the end, which is given each batch and gives the batch to hand out.

        It runs in the thread that loops over the loader, under Python's lock: what it costs is added to every
        step, while everything before it goes on in threads.
        """
        return Dataset(self._native, (*self._functions, function))


def _headroom(headroom: Headroom) -> int | None:
    """Bytes that are free for data; without a word of the user, what the nearest limit leaves."""
    if headroom is None:
        return probe().host.headroom_bytes if sys.platform == "linux" else None
    return _native.size_bytes(headroom) if isinstance(headroom, str) else headroom


def _paths(paths: Path | Sequence[Path]) -> list[str]:
    one = isinstance(paths, (str, os.PathLike))
    return [os.fspath(path) for path in ([paths] if one else paths)]


def hdf5(path: Path, fields: Mapping[str, str] | None = None, *, headroom: Headroom = None) -> Dataset:
    """Open an HDF5 file whose datasets have one sample per row.

    Args:
        path: The file.
        fields: Names of fields and the datasets that they are read from; without it all datasets of the file
            that have as many rows as the first.
        headroom: Bytes, or text such as "4GiB", that are free for the file's pages; decides how it is read.
            Without it, what the nearest limit of this machine leaves.
    """
    wanted = None if fields is None else list(fields.items())
    return Dataset(_native.open_hdf5(os.fspath(path), wanted, _headroom(headroom)))


def arrow(
    paths: Path | Sequence[Path], columns: Sequence[str] | None = None, *, headroom: Headroom = None
) -> Dataset:
    """Open Arrow IPC files, of the file or the stream format, as Hugging Face datasets writes them.

    Several files are one dataset.
    """
    names = None if columns is None else list(columns)
    return Dataset(_native.open_arrow(_paths(paths), names, _headroom(headroom)))


def npy(paths: Mapping[str, Path] | Path, *, headroom: Headroom = None) -> Dataset:
    """Open `.npy` files with one sample per row: a file, or files by the names of their fields."""
    named = {"data": paths} if isinstance(paths, (str, os.PathLike)) else paths
    files = [(name, os.fspath(path)) for name, path in named.items()]
    return Dataset(_native.open_npy(files, _headroom(headroom)))


def raw(
    path: Path, shape: Sequence[int], dtype: str, *, field: str = "data", headroom: Headroom = None
) -> Dataset:
    """Open a file that is nothing but arrays of one shape, one after another, as `numpy.memmap` makes it."""
    return Dataset(_native.open_raw(field, os.fspath(path), list(shape), dtype, _headroom(headroom)))


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
            number for each token: "document", which document of the block it is in, from 0, and "position", its
            place in that document.
        headroom: As for `hdf5`.
    """
    opened = _native.open_tokens(os.fspath(path), length, dtype, as_int64, documents, _headroom(headroom))
    return Dataset(opened)


def lines(paths: Path | Sequence[Path], *, json: str | None = None, headroom: Headroom = None) -> Dataset:
    """Open text files whose lines are samples; with `json`, this field of the object in each line."""
    return Dataset(_native.open_lines(_paths(paths), json, _headroom(headroom)))


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
        labels: Add a field "label": the place of a sample's first folder among all of them, as `ImageFolder` has it.
        split: Take only files below `CLASS/SPLIT`, such as "train" in ModelNet.
        headroom: As for `hdf5`.
    """
    return Dataset(
        _native.open_folder(os.fspath(root), list(extensions), labels, split, _headroom(headroom))
    )


def tar(paths: Path | Sequence[Path], *extensions: str, headroom: Headroom = None) -> Dataset:
    """Open tar files as WebDataset writes them: members with one name and several extensions are one sample."""
    return Dataset(_native.open_tar(_paths(paths), list(extensions), _headroom(headroom)))


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a loader has done so far, and where the time went."""

    batches: int
    samples: int
    skipped: int
    waited_seconds: float
    worked_seconds: float
    idle_seconds: float


class Loader:
    """Loops over batches of a dataset, made ahead by native threads inside a byte budget.

    The order depends on the seed and the epoch alone. Every loop is a new epoch. `state_dict` says how far the
    training has come; a loader that is given it goes on there, also with other threads, ranks or batch size.
    """

    def __init__(  # noqa: PLR0913
        self,
        dataset: Dataset,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        memory: int | str = "512MiB",
        threads: int | None = None,
        prefetch: int = 4,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        on_error: str = "raise",
        output: str | None = None,
        pin_memory: bool = False,
    ) -> None:
        """Check everything that can be checked before the first step.

        Args:
            dataset: What the functions of `brimful.data` give.
            batch_size: Samples of a batch, on each rank.
            shuffle: Take the samples in another order in every epoch.
            seed: Of the order and of random ops.
            memory: All that it may hold: bytes, or text such as "512MiB". Batches that were handed out do not count.
            threads: As many as this process may use processors, unless the memory is too little for all of them.
            prefetch: Batches ahead at the most, where the memory allows.
            rank: Which of `world_size` processes this is.
            world_size: Processes that train together; each gets its own part of every step.
            drop_last: Leave out the samples at the end that do not fill a batch for every rank.
            on_error: "raise", or "skip" to leave out samples that cannot be read, and count them.
            output: "torch" or "numpy"; without it torch where it is installed.
            pin_memory: Hand out batches in pinned memory, for a fast copy to a card.
        """
        if on_error not in {"raise", "skip"}:
            raise InputError(f'expected `on_error` to be "raise" or "skip", found {on_error!r}')
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0
        self._shuffle = shuffle
        self._position = 0
        self._is_fresh = True
        self._pin_memory = pin_memory
        self._array = _maker(output)
        self._names = list(dataset.fields)
        self._running: _native.Epoch | None = None
        self._native = _native.Loader(
            dataset._native,  # noqa: SLF001
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            memory=_native.size_bytes(memory) if isinstance(memory, str) else memory,
            threads=threads or len(os.sched_getaffinity(0)),
            prefetch=prefetch,
            rank=rank,
            world_size=world_size,
            drop_last=drop_last,
            skip_errors=on_error == "skip",
        )

    def __len__(self) -> int:
        """Tell how many batches of this rank an epoch has."""
        return self._native.batches(0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Begin the next epoch, or go on where a loaded state says."""
        if not self._is_fresh:
            self.epoch += 1
            self._position = 0
        self._is_fresh = False
        if self._running is not None:
            self._running.close()
        self._running = self._native.epoch(self.epoch, self._position)
        return self._batches(self._running)

    def _batches(self, running: _native.Epoch) -> Iterator[dict[str, Any]]:
        try:
            while (found := running.next()) is not None:
                arrays, position = found
                batch: Any = {name: self._array(one) for name, one in zip(self._names, arrays, strict=True)}
                if self._pin_memory:
                    batch = {name: one.pin_memory() for name, one in batch.items()}
                for function in self.dataset._functions:  # noqa: SLF001
                    batch = function(batch)
                if running is self._running:
                    self._position = position
                yield batch
            if running is self._running:
                self.epoch += 1
                self._position = 0
                self._is_fresh = True
        finally:
            running.close()

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop be this epoch, as `DistributedSampler` has it."""
        self.epoch = epoch
        self._position = 0
        self._is_fresh = True

    def state_dict(self) -> dict[str, int | bool]:
        """Say how far the training has come: after the batch that was handed out last."""
        return {
            "version": _STATE_VERSION,
            "epoch": self.epoch,
            "position": self._position,
            "seed": self.seed,
            "shuffle": self._shuffle,
            "samples": self._native.samples,
        }

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Go on from there: the next loop gives the samples of the epoch that were not handed out yet."""
        own = self.state_dict()
        for name in ("version", "samples", "seed", "shuffle"):
            if state.get(name) != own[name]:
                raise InputError(
                    f"expected a state with {name} {own[name]}, found {state.get(name)}",
                    ["a state goes with the same samples, seed and shuffle; threads, ranks and batches may differ"],
                )
        epoch, position = state.get("epoch"), state.get("position")
        samples = self._native.samples
        if not (isinstance(epoch, int) and isinstance(position, int) and 0 <= position <= samples and epoch >= 0):
            raise InputError(f"expected an epoch and a position up to {samples}, found {epoch} and {position}")
        self.epoch, self._position, self._is_fresh = epoch, position, True

    @property
    def held_bytes(self) -> int:
        """Bytes that it holds now, besides batches that were handed out."""
        return self._native.held_bytes

    @property
    def progress(self) -> float:
        """How much of the epoch was handed out, from 0 to 1."""
        samples = self._native.samples
        return self._position / samples if samples else math.nan

    @property
    def statistics(self) -> Statistics:
        """What it has done so far, and where the time went."""
        return Statistics(*self._native.statistics)

    @property
    def threads(self) -> int:
        """Threads that work for it."""
        return self._native.budget[0]

    def set_pressure(self, pressure: float) -> None:
        """Say how short memory is, from 0 to 1: fewer batches are then made ahead, down to one."""
        self._native.set_pressure(pressure)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        threads, batches, batch, _ = self._native.budget
        return (
            f"Loader({len(self)} batches of {self.batch_size}, {threads} threads, "
            f"up to {batches} batches of {_native.size_text(batch)} ahead)"
        )


def _maker(output: str | None) -> Callable[[_native.BatchArray], Any]:
    """How a field is handed out."""
    if output not in {None, "torch", "numpy"}:
        raise InputError(f'expected `output` to be "torch" or "numpy", found {output!r}')
    if output in {None, "torch"}:
        try:
            import torch  # noqa: PLC0415
        except ImportError:
            if output == "torch":
                raise
        else:
            return torch.from_dlpack
    try:
        import numpy as np  # noqa: PLC0415
    except ImportError:
        if output == "numpy":
            raise
        return lambda array: array
    return np.asarray
