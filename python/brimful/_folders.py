"""Directories for files of brimful."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# The owner that the kernel shows in a user namespace, as of containers, for users whom it does not know.
_UNKNOWN_OWNER = 65534


def cache_folder() -> str | None:
    """Return the cache directory: `$XDG_CACHE_HOME/brimful` or `~/.cache/brimful`.

    None for users without a home directory, as in some containers.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore relative paths.
    root = cache if cache.startswith("/") else os.path.join(os.path.expanduser("~"), ".cache")  # noqa: PTH111, PTH118
    return os.path.join(root, "brimful") if root.startswith("/") else None  # noqa: PTH118


def temporary_place() -> str | None:
    """Return the directory for temporary files, or None if another user could replace files in it.

    The first of `TMPDIR`, `/tmp` and `/var/tmp` that no other user can write to, or that is sticky, and whose
    parents are such directories too.
    """
    # Both are slow to import.
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):  # noqa: S108
        real = Path(place).resolve()
        if real.is_dir() and all(_is_trusted(directory) for directory in (real, *real.parents)):
            return str(real)
    return None


def _is_trusted(directory: Path) -> bool:
    facts = directory.stat()
    is_ours = facts.st_uid in (0, os.geteuid(), _UNKNOWN_OWNER)
    is_sticky = facts.st_mode & 0o1000 != 0
    return is_ours and (is_sticky or facts.st_mode & 0o022 == 0)
