"""Where files of ours lie."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from brimful import _folders

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place.resolve()


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1777])
def test_temporary_files_go_where_they_are_told(mode: int, place: Path) -> None:
    place.chmod(mode)
    assert _folders.temporary_place() == str(place)


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_temporary_files_do_not_go_where_others_could_replace_them(mode: int, place: Path) -> None:
    place.chmod(mode)
    assert _folders.temporary_place() not in (None, str(place))
