"""Datasets: samples of named fields, and what is done with each; public as `brimful.data.Dataset`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

from brimful import _data_arguments as given
from brimful._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from brimful import _native
    from brimful._data_arguments import Path

__all__ = ["Dataset"]


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
            "brimful.data datasets cannot be pickled: they hold open files",
            ["open it in the process that uses it; `Loader` needs no worker processes"],
        )

    def _with(self, native: _native.Dataset) -> Dataset:
        if self._functions:
            raise InputError("`map` must be the last op of a dataset", ["move `map` to the end"])
        return Dataset(native)

    def decode(self, field: str, *, max_pixels: int = 16 << 20) -> Dataset:
        """Decode JPEG, PNG and WebP files to `uint8` of height x width x 3.

        Args:
            field: The bytes of image files.
            max_pixels: Larger images are errors. Each thread of a loader may need 11 bytes for each of them,
                so that its `memory` has to grow along.
        """
        return self._with(self._native.decode(field, given.whole("max_pixels", max_pixels, least=1)))

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
        """Change the type of the elements, such as to "float32"; what does not fit is cut to the nearest.

        A text with a number in it, as labels in tar files are, becomes that number ("int64" or "float32").
        """
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
        max_bytes: int | None = None,
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
            max_bytes: Longer texts are cut before they are looked at, which bounds memory: a thread may take
                400 times as much. Without it, 32 bytes for each token, but at least 4 KiB and at most 1 MiB.
        """
        return self._with(
            self._native.tokenize(
                field,
                os.fspath(tokenizer),
                length,
                pad_id=pad_id,
                special_tokens=special_tokens,
                max_bytes=max_bytes,
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
