"""`brimful.share()`: one copy of a dataset for all workers, in one line."""

from __future__ import annotations

import os
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any

from brimful import _native
from brimful._errors import InputError, MachineError
from brimful._folders import cache_folder
from brimful._native import SharedArray, SharedDict, SharedList

# Collate functions and type checks ask for these.
Sequence.register(SharedList)
Mapping.register(SharedDict)


def share(obj: Any, *, where: str | os.PathLike[str] = "memory") -> Any:  # noqa: ANN401
    """Copy data once into memory that all processes share, and return an object with the same interface.

    DataLoader workers copy what a Dataset holds: by pickling with spawn and forkserver, and page by page with
    fork, because Python stores reference counts inside objects. A shared copy contains no Python objects, and
    pickling it sends only a small handle. It is freed when the last process that uses it exits, even after
    SIGKILL.

    Supports lists, tuples, dicts, str, bytes, int, float, bool, None, NumPy arrays and scalars, and CPU
    tensors, nested in any way. Nested lists and dicts are returned as views, tuples as tuples, arrays and
    tensors without a copy. The original data is not changed: delete it after sharing, or pass an iterator, so
    that the data is never in memory twice.

    Args:
        obj: A list, tuple, dict, array or tensor; or an iterator, such as a generator or an open file, whose
            items are written one by one. An object that is already shared is returned unchanged.
        where: "memory", which is not limited by the size of /dev/shm; "disk" for an unnamed file in the cache
            directory (`$XDG_CACHE_HOME/brimful` or `~/.cache/brimful`), whose pages the kernel can drop if
            memory is short; or a directory for that file.

    Returns:
        A `SharedList`, `SharedDict` or `SharedArray`; `nbytes` is its size.

    Raises:
        InputError: A value cannot be shared; the message names its position.
        MachineError: There is not enough space for the copy.

    Examples:
        >>> import brimful
        >>> texts = brimful.share(["a first text", "a second one", "a third"])
        >>> texts[1], texts[-1], len(texts)
        ('a second one', 'a third', 3)
        >>> texts[:2].tolist()
        ['a first text', 'a second one']
        >>> records = brimful.share({"names": ["a", "b"], "sizes": [(3, 4), (5, 6)]})
        >>> records["sizes"][0]
        (3, 4)
        >>> brimful.share(name.upper() for name in records["names"]).tolist()
        ['A', 'B']
        >>> brimful.share([{"meta": {1, 2}}])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        brimful._errors.InputError: cannot share a value of type set at [0]['meta']
        hint: convert it to a list, or to a dict with None values to keep lookups
        hint: supported types are str, bytes, numbers, bool, None, list, tuple, dict, arrays and tensors
    """
    if isinstance(obj, (SharedList, SharedDict, SharedArray)):
        return obj
    return _native.share(obj, folder=_folder(where))


def _folder(where: str | os.PathLike[str]) -> str | None:
    if where == "memory":
        return None
    if where == "disk":
        if (folder := cache_folder()) is not None:
            return folder
        raise MachineError(
            "no home directory to store the shared copy in",
            ["set XDG_CACHE_HOME to a directory, or pass one as `where`"],
        )
    if isinstance(where, os.PathLike) or (isinstance(where, str) and "/" in where):
        return os.fspath(where)
    raise InputError(
        f"expected `where` to be 'memory', 'disk' or a directory, found {where!r}",
        ["write a directory with a slash, for example './copies', or pass a pathlib.Path"],
    )


class SharedKeys(KeysView[Any]):
    """The keys of a `SharedDict`."""


class SharedValues(ValuesView[Any]):
    """The values of a `SharedDict`, iterated without key lookups."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate in the order of the keys."""
        return self._mapping._iterate_values()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001


class SharedItems(ItemsView[Any, Any]):
    """The items of a `SharedDict`, iterated without key lookups."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Iterate in the order of the keys."""
        return zip(self._mapping, self._mapping._iterate_values(), strict=True)  # type: ignore[attr-defined]  # noqa: SLF001
