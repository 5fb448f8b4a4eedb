"""
The compiled part of brimful. Import `brimful` instead.
"""

from _typeshed import SupportsGetItem
from typing import Final, SupportsIndex, final

__all__ = ["__version__", "NativeMachine", "card_names", "machine_names", "probe", "size_text"]

__version__: Final[str]
"""
The version of brimful.
"""

@final
class NativeMachine:
    """
    One machine; `brimful.Machine` is made from its document.
    """
    def html(self, /) -> str:
        """
        The card that a notebook shows.
        """
    def json(self, /) -> str:
        """
        The document that `brimful probe --json` prints.
        """
    def text(self, /, width: SupportsIndex) -> str:
        """
        The page that `brimful probe` prints, without color.
        """

def card_names() -> list[str]:
    """
    The names that `probe(gpu=…)` takes.
    """

def machine_names() -> list[str]:
    """
    The names that `probe(as_machine=…)` takes.
    """

def probe(*, as_machine: str | None, gpu: str | None, memory: str | None, executable: str | None, import_folders: SupportsGetItem[int, str], version: tuple[SupportsIndex, SupportsIndex]) -> NativeMachine:
    """
    Reads the machine this process runs on, or describes a recorded one.
    """

def size_text(size_bytes: SupportsIndex) -> str:
    """
    A number of bytes as people read it.
    """
