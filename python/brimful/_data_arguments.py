"""What users give to `brimful.data`, checked and told in their own words before it reaches native code."""

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
    """Return a whole number of at least `least`; numbers of NumPy and torch count too."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= LARGEST:
        raise InputError(f"expected `{name}` to be a whole number of at least {least}, found {value!r}")
    return number


def sides(name: str, value: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, int]:
    """Return height and width: two numbers, or one for both."""
    pair = tuple(value) if isinstance(value, Sequence) else (value, value)
    if len(pair) != 2:  # noqa: PLR2004
        raise InputError(f"expected `{name}` to be one number, or height and width, found {value!r}")
    return whole(name, pair[0], least=1), whole(name, pair[1], least=1)


def byte_count(name: str, value: SupportsIndex | str) -> int:
    """Return a number of bytes, which may be given as text such as "512MiB"."""
    return _native.size_bytes(value) if isinstance(value, str) else whole(name, value)


def dtype_name(dtype: Any) -> str:  # noqa: ANN401
    """Return the name of a type of elements, which may also be given as NumPy and torch have it."""
    if isinstance(dtype, str):
        return dtype
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None)
    return str(name or dtype).removeprefix("torch.")


def names(value: str | Sequence[str]) -> list[str]:
    """Return one field or several as a list; none at all is a mistake."""
    several = [value] if isinstance(value, str) else list(value)
    if not several or len(set(several)) < len(several):
        raise InputError(f"expected fields, each once, found {value!r}")
    return several


def numbers(value: float | Sequence[float]) -> list[float]:
    """Return one number or several as a list."""
    return [value] if isinstance(value, (int, float)) else list(value)


def paths(value: Path | Sequence[Path]) -> list[str]:
    """Return one path or several as a list; none at all is a mistake."""
    several = [value] if isinstance(value, (str, os.PathLike)) else list(value)
    if not several:
        raise InputError("expected at least one path, found none")
    return [os.fspath(path) for path in several]


def named_paths(value: Mapping[str, Path] | Path) -> list[tuple[str, str]]:
    """Return fields and their files; a file alone is the field "data"."""
    named = {"data": value} if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(named, Mapping) or not named:
        raise InputError(
            f"expected a path, or paths by the names of their fields, found {value!r}",
            ['`npy({"image": "images.npy", "label": "labels.npy"})`'],
        )
    return [(name, os.fspath(path)) for name, path in named.items()]


def named_datasets(value: Mapping[str, str] | Sequence[str]) -> list[tuple[str, str]]:
    """Return fields and the datasets that they are read from; a dataset alone names its field too."""
    if isinstance(value, Mapping):
        return list(value.items())
    return [(name, name) for name in ([value] if isinstance(value, str) else value)]


def extensions(values: Sequence[str]) -> list[str]:
    """Return the extensions of files."""
    for value in values:
        if not isinstance(value, str):
            raise InputError(
                f'expected extensions such as "jpg", found {value!r}',
                ['give them one by one: `"jpg", "png"`'],
            )
    return list(values)
