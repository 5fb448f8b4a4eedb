"""What the objects that brimful returns have in common."""

from __future__ import annotations

import json
from typing import Any


class Shown:
    """A document in three forms: JSON, the page of a terminal, the card of a notebook."""

    __slots__ = ()
    _json: str
    _text: str
    _html: str

    def to_json(self) -> str:
        """Return the document that the command prints with `--json`."""
        return self._json

    def to_dict(self) -> dict[str, Any]:
        """Return the same document as plain dictionaries and lists."""
        document: dict[str, Any] = json.loads(self._json)
        return document

    def __str__(self) -> str:
        """Return the page that the command prints."""
        return self._text

    def _repr_html_(self) -> str:
        return self._html
