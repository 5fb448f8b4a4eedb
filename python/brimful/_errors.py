"""Exceptions: one class per kind of error, each also a subclass of a builtin exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class BrimfulError(Exception):
    """Base class of all exceptions of brimful.

    Attributes:
        message: What failed and why.
        hints: What to do next.
    """

    def __init__(self, message: str, hints: Sequence[str] = ()) -> None:
        """Store the parts, and join them to the text of the exception."""
        self.message = message
        self.hints = tuple(hints)
        super().__init__("\n".join([message, *(f"hint: {hint}" for hint in self.hints)]))


class InputError(BrimfulError, ValueError):
    """An argument, a name or a file is invalid."""


class MachineError(BrimfulError, OSError):
    """An environment error: an unsupported platform, a missing permission, a full disk."""


class InternalError(BrimfulError, RuntimeError):
    """A bug in brimful, not in the training script."""
