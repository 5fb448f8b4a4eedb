"""Where files of ours lie."""

from __future__ import annotations

import os


def cache_folder() -> str | None:
    """Return the folder for what can be made again: `$XDG_CACHE_HOME/brimful` or `~/.cache/brimful`.

    None for users without a home, as some containers have them.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The standard asks to ignore relative ones.
    root = cache if cache.startswith("/") else os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118
    return os.path.join(root, "brimful") if root.startswith("/") else None  # noqa: PTH118
