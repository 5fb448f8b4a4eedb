"""Datasets of samples with named fields, and their ops; public as `brimful.data.Dataset`."""

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
    """A dataset of samples with named fields, and the ops applied to them.

    Every method returns a new dataset; the original is unchanged.
    Dtypes and shapes are checked when an op is added, before any sample is read.
    """

    def __init__(self, native: _native.Dataset, functions: tuple[Callable[[Any], Any], ...] = ()) -> None:
        """Wrap a native dataset."""
        self._native = native
        self._functions = functions

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._native)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        fields = ", ".join(f"{name} {kind}" for name, kind in self._native.fields())
        return f"Dataset({len(self)} samples: {fields})"

    @property
    def fields(self) -> dict[str, str]:
        """The fields, with the dtype and shape of each."""
        return dict(self._native.fields())

    @property
    def reading(self) -> str:
        """How the bytes are read (mapped, read, direct or remote), and why."""
        return self._native.reading()

    def __reduce__(self) -> NoReturn:
        """Raise an error: a dataset cannot be pickled or copied."""
        raise InputError(
            "brimful.data datasets cannot be pickled: they hold open files",
            ["open it in the process that uses it; `Loader` needs no worker processes"],
        )

    def _with(self, native: _native.Dataset) -> Dataset:
        if self._functions:
            raise InputError("`map` must be the last op of a dataset", ["move `map` to the end"])
        return Dataset(native)

    def decode(self, field: str, *, max_pixels: int = 16 << 20) -> Dataset:
        """Decode JPEG, PNG and WebP images to `uint8` arrays of shape height x width x 3.

        Args:
            field: A field of image files.
            max_pixels: Larger images raise an error. Each thread of a loader may need 11 bytes per pixel, so
                increase `memory` accordingly.
        """
        return self._with(self._native.decode(field, given.whole("max_pixels", max_pixels, least=1)))

    def resize(self, field: str, size: int | tuple[int, int], *, filter: str = "bilinear") -> Dataset:  # noqa: A002
        """Resize the last two dimensions, with antialiasing.

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
        """Crop the last two dimensions, at the center or at random; several fields at the same position."""
        height, width = given.sides("size", size)
        return self._with(self._native.crop(given.names(fields), height, width, random))

    def flip(self, fields: str | Sequence[str], *, probability: float = 0.5) -> Dataset:
        """Flip some samples horizontally; several fields together, for example an image and its mask."""
        return self._with(self._native.flip(given.names(fields), probability))

    def transpose(self, field: str, axes: Sequence[int]) -> Dataset:
        """Permute the dimensions, like `numpy.transpose`."""
        return self._with(self._native.transpose(field, [given.whole("axes", axis) for axis in axes]))

    def normalize(
        self,
        field: str,
        mean: float | Sequence[float],
        std: float | Sequence[float],
        *,
        scale: float | None = None,
    ) -> Dataset:
        """Compute `(value * scale - mean) / std` per channel, as `float32`.

        Args:
            field: An array whose first dimension is the channels.
            mean: One number per channel, or one for all channels.
            std: One number per channel, or one for all channels.
            scale: By default 1/255 for `uint8` and 1 otherwise.
        """
        return self._with(self._native.normalize(field, given.numbers(mean), given.numbers(std), scale))

    def cast(self, field: str, dtype: str) -> Dataset:
        """Convert the elements to another dtype, for example "float32"; values out of range are clamped.

        Text that contains a number, such as a label in a tar file, is parsed ("int64" or "float32").
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
        """Convert meshes to voxel grids of `size` x `size` x `size`, with 1 for occupied voxels.

        Args:
            field: A field of mesh files, opened with `folder`.
            size: Voxels per dimension.
            dtype: "float32" or "uint8".
            channel: Add a leading dimension of size 1.
            surface: Mark all voxels that a triangle touches, instead of only those with a vertex or the
                center of a triangle.
            rotations: Rotate each mesh around z by a random multiple of a full turn divided by this number.
        """
        size, rotations = given.whole("size", size, least=1), given.whole("rotations", rotations, least=1)
        dtype = given.dtype_name(dtype)
        return self._with(self._native.voxelize(field, size, dtype, channel, surface, rotations))

    def __getitem__(self, part: slice) -> Dataset:
        """Return a slice of the samples: `dataset[:1000]`."""
        if not isinstance(part, slice):
            raise TypeError(
                f"datasets support only slices such as `dataset[:1000]`, not `dataset[{part!r}]`; "
                "iterate over `brimful.data.Loader(dataset)` to read samples"
            )
        if part.step not in {None, 1}:
            raise InputError(f"slices with a step are not supported: {part}")
        start, end, _ = part.indices(len(self))
        return Dataset(self._native.part(start, end, None), self._functions)

    def split(self, fraction: float, *, seed: int = 0) -> tuple[Dataset, Dataset]:
        """Split the samples at random, reproducibly for the same seed: `train, held_out = data.split(0.9)`.

        Args:
            fraction: Fraction of the samples in the first part, from 0 to 1.
            seed: Seed of the random split.
        """
        if not 0 <= fraction <= 1:
            raise InputError(f"expected `fraction` to be from 0 to 1, found {fraction!r}")
        middle, end = round(len(self) * fraction), len(self)
        seed = given.whole("seed", seed)
        parts = ((0, middle), (middle, end))
        first, second = (Dataset(self._native.part(*part, seed), self._functions) for part in parts)
        return first, second

    def numbered(self, field: str = "number") -> Dataset:
        """Add a field with the index of each sample in this dataset, as `int64`."""
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
        """Convert text to `length` tokens as `int64`, truncated or padded at the end.

        The result equals that of the `tokenizers` library with truncation and padding to that length.

        Args:
            field: Text in UTF-8.
            tokenizer: Path of a `tokenizer.json`, or of a directory that contains one.
            length: Tokens per sample, including special tokens.
            pad_id: Padding token; by default that of the tokenizer, or 0 if it has none.
            mask: Name of an additional field that is 1 for tokens and 0 for padding.
            special_tokens: Add the special tokens of the tokenizer.
            max_bytes: Truncate longer texts before tokenization, which limits memory: a thread may need 400
                times as much. By default 32 bytes per token, but at least 4 KiB and at most 1 MiB.
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
        """Copy a field, in its current form, to a new field."""
        return self._with(self._native.copy(field, to))

    def select(self, *fields: str) -> Dataset:
        """Keep only these fields."""
        if len(set(fields)) < len(fields):
            raise InputError(f"duplicate field in {', '.join(fields)}")
        return self._with(self._native.keep(list(fields)))

    def rename(self, field: str, to: str) -> Dataset:
        """Rename a field."""
        return self._with(self._native.rename(field, to))

    def map(self, function: Callable[[Any], Any]) -> Dataset:
        """Apply a Python function to each batch; its result is the batch that the loader returns.

        It runs in the thread that iterates over the loader and holds the GIL, so its time adds to every step;
        all other ops run in native threads. On free-threaded Python, as many batches as there are threads
        are mapped concurrently, in order; these count as returned.
        """
        if not callable(function):
            raise InputError(f"`map` requires a function, not {function!r}")
        return Dataset(self._native, (*self._functions, function))
