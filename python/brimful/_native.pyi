"""
The compiled part of brimful. Import `brimful` instead.
"""

from _typeshed import SupportsGetItem
from os import PathLike
from typing import Any, Final, SupportsFloat, SupportsIndex

__all__ = ["__version__", "card_names", "machine_names", "plan", "predict", "probe", "size_text"]

__version__: Final[str]
"""
The version of brimful.
"""

def card_names() -> list[str]:
    """
    The names that `probe(gpu=…)` takes.
    """

def machine_names() -> list[str]:
    """
    The names that `probe(as_machine=…)` takes.
    """

def plan(*, job: str | PathLike[str] | None, mode: str | None, overrides: SupportsGetItem[int, str], as_machine: str | None, gpu: str | None, memory: str | None, fresh: bool, steps: SupportsIndex, beside_driver: bool, time_limit: SupportsFloat | SupportsIndex, phantom: str | PathLike[str], progress: Any | None) -> tuple[str, str, str, str, str]:
    """
    Searches for the best settings of a job.

    Returns the JSON document, the page for a terminal, the card for a notebook, and the settings under the names of
    Hugging Face and of Lightning.
    """

def predict(*, command: SupportsGetItem[int, str], shown: SupportsGetItem[int, str], gpu: str | None, steps: SupportsIndex, with_: SupportsGetItem[int, str], alloc_conf: str | None, phantom: str | PathLike[str], beside_driver: bool, time_limit: SupportsFloat | SupportsIndex, progress: Any | None) -> tuple[str, str, str]:
    """
    Rehearses a command and predicts its memory.

    Returns the JSON document, the page for a terminal and the card for a notebook. `progress` is called with one line
    whenever there is something to tell.
    """

def probe(*, as_machine: str | None, gpu: str | None, memory: str | None, executable: str | None, import_folders: SupportsGetItem[int, str], version: tuple[SupportsIndex, SupportsIndex]) -> tuple[str, str, str]:
    """
    Reads the machine this process runs on, or describes a recorded one.

    Returns it in three forms: the JSON document, the page for a terminal, the card for a notebook. Plain text, so that
    what Python makes of it can be copied, pickled and sent to workers.
    """

def size_text(size_bytes: SupportsIndex) -> str:
    """
    A number of bytes as people read it.
    """
