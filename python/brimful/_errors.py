"""What brimful raises: one class per kind, each also a fitting builtin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class BrimfulError(Exception):
    """The base of everything that brimful raises.

    Attributes:
        message: What was expected and what was found.
        hints: What to do next.
    """

    def __init__(self, message: str, hints: Sequence[str] = ()) -> None:
        """Keep the parts, and show them as one text."""
        self.message = message
        self.hints = tuple(hints)
        super().__init__("\n".join([message, *(f"hint: {hint}" for hint in self.hints)]))


class InputError(BrimfulError, ValueError):
    """An argument, a name or a file is not as expected."""


class MachineError(BrimfulError, OSError):
    """The machine stands in the way: an unsupported platform, a missing permission, a full disk."""


class InternalError(BrimfulError, RuntimeError):
    """A bug in brimful. Nothing is wrong with the training."""
