"""What a branch of a rehearsal mounts over: mounts of other processes come and go."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / "crates/brimful-rehearse/src/hook/brimful_isolation.py"
spec = importlib.util.spec_from_file_location("brimful_isolation", HOOK)
assert spec is not None
assert spec.loader is not None
isolation = importlib.util.module_from_spec(spec)
spec.loader.exec_module(isolation)


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_mount_whose_place_was_removed_gets_it_again(tmp_path: Path, kind: str) -> None:
    seen, target = tmp_path / "seen", tmp_path / "new root/a/b"
    if kind == "directory":
        seen.mkdir()
    else:
        seen.write_text("mounted")
    assert isolation.can_be_mounted(str(seen), str(target))
    assert target.is_dir() == (kind == "directory")
    assert target.exists()
    # Now there is one.
    assert isolation.can_be_mounted(str(tmp_path / "nowhere"), str(target))


def test_what_is_gone_everywhere_is_left_out(tmp_path: Path) -> None:
    target = tmp_path / "new root/a"
    assert not isolation.can_be_mounted(str(tmp_path / "gone"), str(target))
    assert not target.parent.exists()
