"""Validation of the arguments of `brimful.data`, before they reach native code."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

from brimful import _native
from brimful._errors import InputError

Path = str | os.PathLike[str]
LARGEST = 2**64 - 1


def whole(name: str, value: SupportsIndex, *, least: int = 0) -> int:
    """Return an integer of at least `least`; integers of NumPy and torch are accepted."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= LARGEST:
        raise InputError(f"`{name}` must be an integer of at least {least}, not {value!r}")
    return number


def sides(name: str, value: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, int]:
    """Return height and width: two numbers, or one for both."""
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(pair) != 2:  # noqa: PLR2004
        raise InputError(f"`{name}` must be one integer, or height and width, not {value!r}")
    return whole(name, pair[0], least=1), whole(name, pair[1], least=1)


def byte_count(name: str, value: SupportsIndex | str) -> int:
    """Return a number of bytes, given as an integer or as a string such as "512MiB"."""
    return _native.size_bytes(value) if isinstance(value, str) else whole(name, value)


def dtype_name(dtype: Any) -> str:  # noqa: ANN401
    """Return the name of a dtype, given as a string or as a dtype of NumPy or torch."""
    if isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return str(name or dtype).removeprefix("torch.")


def names(value: str | Sequence[str]) -> list[str]:
    """Return one field or several as a list; an empty list is an error."""
    several = [value] if isinstance(value, str) else list(value)
    if not several or len(set(several)) < len(several):
        raise InputError(f"expected one or more distinct fields, found {value!r}")
    return several


def numbers(value: float | Sequence[float]) -> list[float]:
    """Return one number or several as a list."""
    return [value] if isinstance(value, (int, float)) else list(value)


def paths(value: Path | Sequence[Path]) -> list[str]:
    """Return one path or several as a list; an empty list is an error."""
    several = [value] if isinstance(value, (str, os.PathLike)) else list(value)
    if not several:
        raise InputError("no path was given")
    return [os.fspath(path) for path in several]


def named_paths(value: Mapping[str, Path] | Path) -> list[tuple[str, str]]:
    """Return fields and their files; a single file is the field "data"."""
    named = {"data": value} if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(named, Mapping) or not named:
        raise InputError(
            f"expected a path, or a mapping from field names to paths, found {value!r}",
            ['for example: `npy({"image": "images.npy", "label": "labels.npy"})`'],
        )
    return [(name, os.fspath(path)) for name, path in named.items()]


def named_datasets(value: Mapping[str, str] | Sequence[str]) -> list[tuple[str, str]]:
    """Return fields and their HDF5 datasets; a list of datasets also names the fields."""
    if isinstance(value, Mapping):
        return list(value.items())
    return [(name, name) for name in ([value] if isinstance(value, str) else value)]


def extensions(values: Sequence[str]) -> list[str]:
    """Return the extensions of files."""
    for value in values:
        if not isinstance(value, str):
            raise InputError(
                f'expected extensions such as "jpg", found {value!r}',
                ['pass them as separate arguments: `"jpg", "png"`'],
            )
    return list(values)
