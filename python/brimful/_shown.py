"""What the objects that brimful returns have in common."""

from __future__ import annotations

import json
import os
from typing import Any

from brimful import _native


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


class Reported(Shown):
    """A document of which a report can be made."""

    __slots__ = ()

    def report(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a report: one HTML file with charts, which loads nothing from the network.

        Args:
            path: The file. One that is not a report of brimful is kept unless `force` is set.
            force: Replace any file.

        Raises:
            InputError: The file exists and is not a report of brimful.
            MachineError: The file cannot be written.
        """
        _native.report_document(document=self._json, path=os.fspath(path), force=force)
