"""The phantom as this machine's GPU: loaded before torch, as `brimful predict` loads it for a script."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

# Processes that are not forked import what they run by its name.
sys.path.insert(0, str(Path(__file__).parent))

TOTAL = 15_634_661_376  # a T4 as torch sees it
NAMES = Path(__file__).parents[2] / "crates/brimful-phantom/sonames.txt"


def phantom_library() -> Path:
    """Return the library that the installed wheel brought along."""
    files = importlib.metadata.distribution("brimful").files or []
    return Path(next(str(file.locate()) for file in files if file.name == "libbrimful_phantom.so")).resolve()


def staged_phantom() -> str:
    """Lay out a folder with the library and a link for each name it answers to."""
    folder = Path(tempfile.mkdtemp(prefix="brimful-tests-"))
    library = shutil.copy(phantom_library(), folder)
    for name in NAMES.read_text().split():
        (folder / name).symlink_to(Path(library).name)
    return str(library)


def load_phantom() -> str:
    """Load it in this process."""
    library = staged_phantom()
    os.environ["BRIMFUL_PHANTOM_DEVICES"] = f"name=Tesla T4,memory={TOTAL},cc=7.5,multiprocessors=40"
    os.environ["BRIMFUL_PHANTOM_CUDNN_VERSION"] = "99900"
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    return library


LIBRARY = load_phantom()


@pytest.fixture
def phantom() -> str:
    """Return the library that makes the phantom the GPU of a process it is preloaded into."""
    return LIBRARY


@pytest.fixture
def children_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that a test starts import torch without its CUDA libraries: the phantom is there."""
    monkeypatch.setenv("LD_PRELOAD", LIBRARY)
