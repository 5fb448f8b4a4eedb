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

from __future__ import annotations

import importlib
import math
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from brimful import _data_arguments as given
from brimful import _native
from brimful._errors import InputError
from brimful._mapped import mapped
from brimful._pack import Packed, pack
from brimful._pressure import RunPressure
from brimful._probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from brimful._data_arguments import Path

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
    "parquet",
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
        """How the bytes are read (mapped, read, direct or remote), and why."""
        return self._native.reading()

    def __reduce__(self) -> NoReturn:
        """Say why it cannot be pickled or copied."""
        raise InputError(
            "expected what can be pickled, found a dataset of `brimful.data`, which holds open files",
            ["open it in the process that uses it; `Loader` needs no worker processes"],
        )

    def _with(self, native: _native.Dataset) -> Dataset:
        if self._functions:
            raise InputError("expected ops before `map`, found one after it", ["put `map` last"])
        return Dataset(native)

    def decode(self, field: str, *, most_pixels: int = 16 << 20) -> Dataset:
        """Decode JPEG, PNG and WebP files to `uint8` of height x width x 3.

        Args:
            field: The bytes of image files.
            most_pixels: Larger images are errors. Each thread of a loader may need 11 bytes for each of them,
                so that its `memory` has to grow along.
        """
        return self._with(self._native.decode(field, given.whole("most_pixels", most_pixels, least=1)))

    def resize(self, field: str, size: int | tuple[int, int], *, filter: str = "bilinear") -> Dataset:  # noqa: A002
        """Resize the last two sides, with antialiasing.

        Args:
            field: An array of `uint8` or `float32`.
            size: Height and width, or one number for both.
            filter: "bilinear" or "bicubic".
        """
        height, width = given.sides("size", size)
        return self._with(self._native.resize(field, height, width, filter))

    def crop(
        self, fields: str | Sequence[str], size: int | tuple[int, int], *, random: bool = False
    ) -> Dataset:
        """Cut the last two sides to a size, from the center or from anywhere; several fields at one place."""
        height, width = given.sides("size", size)
        return self._with(self._native.crop(given.names(fields), height, width, random))

    def flip(self, fields: str | Sequence[str], *, probability: float = 0.5) -> Dataset:
        """Turn left and right around, for some samples; several fields together, as an image and its mask."""
        return self._with(self._native.flip(given.names(fields), probability))

    def transpose(self, field: str, axes: Sequence[int]) -> Dataset:
        """Put the sides into another order, as NumPy's function of this name does."""
        return self._with(self._native.transpose(field, [given.whole("axes", axis) for axis in axes]))

    def normalize(
        self,
        field: str,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        *,
        scale: float | None = None,
    ) -> Dataset:
        """Give `(value * scale - mean) / std` per channel as `float32`.

        Args:
            field: An array whose first side is the channels.
            mean: One number per channel, or one for all.
            std: One number per channel, or one for all.
            scale: 1/255 for `uint8` and 1 otherwise, unless it is given.
        """
        return self._with(self._native.normalize(field, given.numbers(mean), given.numbers(std), scale))

    def cast(self, field: str, dtype: str) -> Dataset:
        """Change the type of the elements, such as to "float32"; what does not fit is cut to the nearest."""
        return self._with(self._native.cast(field, given.dtype_name(dtype)))

    def voxelize(  # noqa: PLR0913
        self,
        field: str,
        size: int,
        *,
        dtype: str = "float32",
        channel: bool = False,
        surface: bool = False,
        rotations: int = 1,
    ) -> Dataset:
        """Turn meshes into grids of `size` x `size` x `size` with 1 where the mesh is.

        Args:
            field: Mesh files, as `folder` gives them.
            size: Voxels of a side.
            dtype: "float32" or "uint8".
            channel: Put a side of 1 before the others.
            surface: Mark all voxels that a triangle touches, and not only those with a vertex or the middle
                of a triangle.
            rotations: Turn each mesh around z by a multiple of a full turn divided by this, by chance.
        """
        size, rotations = given.whole("size", size, least=1), given.whole("rotations", rotations, least=1)
        dtype = given.dtype_name(dtype)
        return self._with(self._native.voxelize(field, size, dtype, channel, surface, rotations))

    def __getitem__(self, part: slice) -> Dataset:
        """Take some of the samples: `dataset[:1000]`."""
        if not isinstance(part, slice):
            raise TypeError(
                f"expected a loop over `brimful.data.Loader(dataset)`, or a part such as `dataset[:1000]`, "
                f"found dataset[{part!r}]"
            )
        if part.step not in {None, 1}:
            raise InputError(f"expected a part without a step, such as `dataset[:1000]`, found {part}")
        start, end, _ = part.indices(len(self))
        return Dataset(self._native.part(start, end, None), self._functions)

    def split(self, fraction: float, *, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Divide the samples by chance, alike with the same seed: `train, held_out = data.split(0.9)`.

        Args:
            fraction: The share of the first part, from 0 to 1.
            seed: Of the chance.
        """
        if not 0 <= fraction <= 1:
            raise InputError(f"expected `fraction` to be from 0 to 1, found {fraction!r}")
        middle, end = round(len(self) * fraction), len(self)
        seed = given.whole("seed", seed)
        parts = ((0, middle), (middle, end))
        first, second = (Dataset(self._native.part(*part, seed), self._functions) for part in parts)
        return first, second

    def numbered(self, field: str = "number") -> Dataset:
        """Add a field with the number of each sample of this dataset, as `int64`."""
        return self._with(self._native.numbered(field))

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
        if len(set(fields)) < len(fields):
            raise InputError(f"expected each field once, found {', '.join(fields)}")
        return self._with(self._native.keep(list(fields)))

    def rename(self, field: str, to: str) -> Dataset:
        """Call a field something else."""
        return self._with(self._native.rename(field, to))

    def map(self, function: Callable[[Any], Any]) -> Dataset:
        """Put a Python function at the end, which is given each batch and gives the batch to hand out.

        It runs in the thread that loops over the loader, under Python's lock: what it costs is added to every
        step, while everything before it goes on in threads. On free-threaded Python as many batches as there
        are threads are mapped at once, in order; these count as handed out.
        """
        if not callable(function):
            raise InputError(f"expected a function of a batch, found {function!r}")
        return Dataset(self._native, (*self._functions, function))


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
    """Open text files whose lines are samples; with `json`, this field of the object in each line."""
    return Dataset(_native.open_lines(given.paths(paths), json, _headroom(headroom)))


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
    """Open tar files as WebDataset writes them: members that differ in the extension only are one sample."""
    return Dataset(_native.open_tar(given.paths(paths), given.extensions(extensions), _headroom(headroom)))


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a loader has done so far, and where the time went."""

    batches: int
    samples: int
    skipped: int
    waited_seconds: float
    worked_seconds: float
    idle_seconds: float
    #: Seconds that threads spent in each stage, such as "read" or "resize image", summed over them. Empty
    #: where samples are read straight into the batch: then reading is all of the work.
    stages: dict[str, float]
    #: Why samples were skipped, of the first twenty.
    skipped_samples: tuple[str, ...] = ()


class Loader:
    """Loops over batches of a dataset, made ahead by native threads inside a byte budget.

    The order depends on the seed and the epoch alone. Every loop that hands out a batch is a new epoch.
    `state_dict` says how far the training has come; a loader that is given it goes on there, also with other
    threads, ranks or batch size.
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
            memory: All that it may hold: bytes, or text such as "512MiB". Batches that were handed out do not
                count.
            threads: As many as this process may use processors, unless the memory is too little for them.
            prefetch: Batches ahead at the most, where the memory allows.
            rank: Which of `world_size` processes this is.
            world_size: Processes that train together; each gets its own part of every step. Where fewer
                samples than processes are left at the end, some get no batch, for which DDP waits forever:
                see `drop_last`.
            drop_last: Leave out the samples at the end that do not fill a batch for every rank.
            on_error: "raise", or "skip" to leave out samples that cannot be read, and count them.
            output: "torch" or "numpy"; without it torch where it is installed.
            pin_memory: Hand out batches in pinned memory, for a fast copy to a card.
        """
        if not isinstance(dataset, Dataset):
            raise InputError(
                f"expected a dataset of `brimful.data`, found {type(dataset).__name__}",
                [
                    "open files with `hdf5`, `arrow`, `npy`, `raw`, `tokens`, `folder` or `tar`",
                    "torch's DataLoader takes a Dataset of your own; `brimful.share` keeps it in one copy",
                ],
            )
        self._step_samples = given.whole("batch_size", batch_size, least=1) * given.whole(
            "world_size", world_size, least=1
        )
        fewest = self._step_samples if drop_last else world_size
        if len(dataset) < fewest:
            raise InputError(
                f"expected at least {fewest} samples, so that every rank gets one, found {dataset!r}"
            )
        if on_error not in {"raise", "skip"}:
            raise InputError(f'expected `on_error` to be "raise" or "skip", found {on_error!r}')
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = given.whole("seed", seed)
        self.drop_last = drop_last
        self.epoch = 0
        self._shuffle = shuffle
        self._position = 0
        self._is_fresh = True
        self._loaded_end: int | None = None
        self._pin_memory = pin_memory and _can_pin(output)
        self._array = _maker(output)
        self._names = list(dataset.fields)
        self._running: _native.Epoch | None = None
        self._run_pressure = RunPressure()
        self._pressure = 0.0
        self._native = _native.Loader(
            dataset._native,  # noqa: SLF001
            batch_size=batch_size,
            shuffle=shuffle,
            seed=self.seed,
            memory=given.byte_count("memory", memory),
            threads=_processors() if threads is None else given.whole("threads", threads, least=1),
            prefetch=given.whole("prefetch", prefetch),
            rank=given.whole("rank", rank),
            world_size=world_size,
            drop_last=drop_last,
            skip_errors=on_error == "skip",
        )

    def __len__(self) -> int:
        """Tell how many batches of this rank an epoch has."""
        return self._native.batches(0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Begin the next epoch, or go on where a loaded state says."""
        # Nothing happens before the first batch is asked for: frameworks ask for an iterator more than once,
        # and call `set_epoch` afterwards.
        if not self._is_fresh:
            self._begin(self.epoch + 1)
        if self._running is not None:
            self._running.close()
        self._heed_pressure()
        epoch = self.epoch
        running = self._running = self._native.epoch(epoch, self._position)
        batches = self._tensors(running)
        for function in self.dataset._functions:  # noqa: SLF001
            batches = mapped(batches, function, self.threads)
        try:
            for batch, position in batches:
                self._begin(epoch, position)
                self._is_fresh = False
                yield batch
            self._check_runs(running)
            self._begin(epoch + 1)
        finally:
            running.close()

    def _tensors(self, running: _native.Epoch) -> Iterator[tuple[dict[str, Any], int]]:
        """Batches as tensors or arrays, each with the position of the epoch after it."""
        while (found := running.next()) is not None:
            self._check_runs(running)
            self._heed_pressure()
            arrays, position = found
            if len(arrays[0]) == 0:
                self._pass_over_empty()
                continue
            batch = {name: self._array(one) for name, one in zip(self._names, arrays, strict=True)}
            if self._pin_memory:
                batch = {name: one.pin_memory() for name, one in batch.items()}
            yield batch, position

    def _heed_pressure(self) -> None:
        if (told := self._run_pressure.news()) is not None:
            self._native.set_pressure(max(told, self._pressure))

    def _check_runs(self, running: _native.Epoch) -> None:
        if running is not self._running:
            raise InputError(
                "expected one loop over a loader at a time, found another one, which has ended this one",
                ["make a second `Loader` for the inner loop"],
            )

    def _pass_over_empty(self) -> None:
        # The mean over no sample is not a number, and would make all weights so.
        if self._step_samples > self.batch_size:
            raise InputError(
                "expected a sample of this batch that can be read, found that all of them were skipped",
                ["the other ranks wait for a batch: mend the data, or give `batch_size` more samples"],
            )

    def _begin(self, epoch: int, position: int = 0) -> None:
        self.epoch, self._position, self._is_fresh, self._loaded_end = epoch, position, True, None

    def _is_over(self, position: int) -> bool:
        left = self._native.samples - position
        return left == 0 or (self.drop_last and left < self._step_samples)

    def set_epoch(self, epoch: int) -> None:
        """Let the next loop be this epoch, as `DistributedSampler` has it.

        Where a state of this epoch was loaded, the loop goes on from it; one that was over has no batches.
        """
        epoch = given.whole("epoch", epoch)
        if self._loaded_end == epoch:
            self._begin(epoch, self._native.samples)
        elif not (self._is_fresh and epoch == self.epoch):
            self._begin(epoch)

    def state_dict(self) -> dict[str, int | bool]:
        """Say how far the training has come: after the batch that was handed out last."""
        samples = self._native.samples
        return {
            "version": _STATE_VERSION,
            "epoch": self.epoch,
            "position": samples if self._is_over(self._position) else self._position,
            "seed": self.seed,
            "shuffle": self._shuffle,
            "samples": samples,
        }

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Go on from there: the next loop gives the samples of the epoch that were not handed out yet.

        Where all of them were, the next loop is the next epoch.
        """
        if not isinstance(state, Mapping):
            raise InputError(f"expected what `state_dict` gave, found {type(state).__name__}")
        own = self.state_dict()
        for name in ("version", "samples", "seed", "shuffle"):
            if state.get(name) != own[name]:
                raise InputError(
                    f"expected a state with {name} {own[name]}, found {state.get(name)}",
                    ["only threads, ranks and batches may differ from those that the state was made with"],
                )
        epoch, position = (given.whole(name, state.get(name, -1)) for name in ("epoch", "position"))
        samples = self._native.samples
        if position > samples:
            raise InputError(f"expected a position up to {samples}, found {position}")
        if position == samples:
            self._begin(epoch + 1)
            self._loaded_end = epoch
        else:
            self._begin(epoch, position)

    def __reduce__(self) -> NoReturn:
        """Say why it cannot be pickled or copied."""
        raise InputError(
            "expected what can be pickled, found a loader of `brimful.data`, with threads and open files",
            [
                "make it in the process that uses it, with its `rank` and `world_size`",
                "a checkpoint keeps `loader.state_dict()`",
            ],
        )

    @property
    def sampler(self) -> Loader:
        """The loader itself: here frameworks look for `set_epoch`."""
        return self

    @property
    def batch_sampler(self) -> Loader:
        """The loader itself: here frameworks look for `batch_size` and `sampler`."""
        return self

    @property
    def position(self) -> int:
        """Samples of the epoch that were handed out, over all ranks."""
        return self._position

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
        batches, samples, skipped, waited, worked, idle, stages = self._native.statistics
        why = tuple(self._native.skipped)
        return Statistics(batches, samples, skipped, waited, worked, idle, dict(stages), why)

    @property
    def threads(self) -> int:
        """Threads that work for it."""
        return self._native.budget[0]

    def set_pressure(self, pressure: float) -> None:
        """Say how short memory is, from 0 to 1: fewer batches are then made ahead, down to one.

        Below `brimful run` the loader also asks its gauge, and the higher of the two counts.
        """
        self._pressure = pressure
        self._native.set_pressure(pressure)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        threads, batches, batch, _ = self._native.budget
        return (
            f"Loader({len(self)} batches of {self.batch_size}, {threads} threads, "
            f"up to {batches} batches of {_native.size_text(batch)} ahead)"
        )


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _can_pin(output: str | None) -> bool:
    """Whether there is a card to pin memory for; torch's DataLoader says the same where there is none."""
    if output == "numpy":
        raise InputError('expected `output="torch"` with `pin_memory`, found "numpy"')
    torch: Any = importlib.import_module("torch")
    found = torch.accelerator if hasattr(torch, "accelerator") else torch.cuda
    is_there = bool(found.is_available())
    if not is_there:
        warnings.warn("`pin_memory` does nothing: torch sees no card", stacklevel=3)
    return is_there


def _maker(output: str | None) -> Callable[[_native.BatchArray], Any]:
    """How a field is handed out: by torch, else by NumPy, else as it is."""
    if output not in {None, "torch", "numpy"}:
        raise InputError(f'expected `output` to be "torch" or "numpy", found {output!r}')
    for name, function in (("torch", "from_dlpack"), ("numpy", "asarray")):
        if output in {None, name}:
            try:
                maker: Callable[[_native.BatchArray], Any] = getattr(importlib.import_module(name), function)
            except ImportError:
                if output is not None:
                    raise
            else:
                return maker
    return lambda array: array
