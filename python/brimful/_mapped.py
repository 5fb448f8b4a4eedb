"""A Python function on every batch, in order."""

from __future__ import annotations

import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Batches = Iterator[tuple[Any, int]]


def mapped(batches: Batches, function: Callable[[Any], Any], threads: int) -> Batches:
    """Apply the function to each batch, and yield the result with the position of the batch.

    With the GIL, threads would only take turns, so the function runs in the thread of the loop. Without it,
    as many batches as there are threads are mapped concurrently.
    """
    if threads < 2 or has_lock():  # noqa: PLR2004
        for batch, position in batches:
            yield function(batch), position
        return
    pool = ThreadPoolExecutor(threads, "brimful-map")
    ahead: deque[tuple[Any, int]] = deque()
    try:
        for batch, position in batches:
            ahead.append((pool.submit(function, batch), position))
            if len(ahead) == threads:
                first, at = ahead.popleft()
                yield first.result(), at
        while ahead:
            first, at = ahead.popleft()
            yield first.result(), at
    finally:
        pool.shutdown(cancel_futures=True)


def has_lock() -> bool:
    """Whether the GIL is enabled, as in all but free-threaded builds of Python 3.13 and later."""
    asked = getattr(sys, "_is_gil_enabled", None)
    return True if asked is None else asked()
