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
    """Copy data once into memory that all processes share, and return something that is read like it.

    Workers of a DataLoader copy what a Dataset holds: by pickling under spawn and forkserver, and page by
    page under fork, because Python counts references inside of the objects. A shared copy holds no Python
    objects, and pickling it sends a handle of some bytes. It is freed when the last process that uses it is
    gone, however it went.

    Taken are lists, tuples, dicts, str, bytes, int, float, bool, None, NumPy arrays and scalars, and tensors
    on the CPU, nested in any way. Inside, lists and dicts come back as views, tuples as tuples, arrays and
    tensors without a copy. The data itself is not changed: delete it after sharing, or pass an iterator, so
    that it never exists twice.

    Args:
        obj: A list, tuple, dict, array or tensor; or an iterator, such as a generator or an open file, whose
            items are written one by one. What is shared already is returned as it is.
        where: "memory", which is not bounded by the size of /dev/shm; "disk" for a file without a name in
            the cache folder (`$XDG_CACHE_HOME/brimful` or `~/.cache/brimful`), whose pages the kernel can
            drop where memory is short; or a folder for that file.

    Returns:
        A `SharedList`, `SharedDict` or `SharedArray`; `nbytes` tells how much it takes.

    Raises:
        InputError: Something in it cannot be shared; the message says where it is.
        MachineError: There is no room for the copy.

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
    """The values of a `SharedDict`, walked through without looking keys up."""

    def __iter__(self) -> Iterator[Any]:
        """Walk through them in the order of the keys."""
        return self._mapping._iterate_values()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001


class SharedItems(ItemsView[Any, Any]):
    """The pairs of a `SharedDict`, walked through without looking keys up."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Walk through them in the order of the keys."""
        return zip(self._mapping, self._mapping._iterate_values(), strict=True)  # type: ignore[attr-defined]  # noqa: SLF001
