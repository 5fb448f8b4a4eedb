"""How a rehearsal waits for torch, with a small package in its place: no native part is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

HOOK = Path(__file__).parents[2] / "crates/brimful-rehearse/src/hook"

# Loads the parts as sitecustomize does, and prints what it would install.
PRELUDE = """
    import importlib.machinery
    import importlib.util
    import sys

    sys.path.insert(0, HOOK)
    from brimful_imports import IMPORTS
    from brimful_torch import TorchWatch

    sys.path.remove(HOOK)
    IMPORTS.install()
    TorchWatch(lambda torch: print("installed", torch.value)).start()
"""

FRONT = """
    class Front:
        def find_spec(self, name, path=None, target=None):
            if name == "torch":
                return FIND
            return None

    sys.meta_path.insert(0, Front())
    import torch
"""


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """Lay out a package that imports its native part first, as torch does."""
    package = tmp_path / "packages" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from torch import _C\nfrom torch import nn\nvalue = _C.value\n")
    (package / "_C.py").write_text("value = 17\n")
    (package / "nn.py").write_text("")
    return package


def run(torch: Path, script: str) -> tuple[int, list[str], list[dict[str, Any]]]:
    """Run a script; its exit code, what it printed, and what the hook reported."""
    results = torch.parents[1] / "results"
    results.mkdir(exist_ok=True)
    text = textwrap.dedent(PRELUDE).replace("HOOK", repr(str(HOOK))) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={
            **os.environ,
            "PYTHONPATH": str(torch.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "BRIMFUL_REHEARSAL": str(results),
        },
    )
    progress = results / "progress"
    lines = progress.read_text().splitlines() if progress.exists() else []
    assert done.returncode in {0, 97}, done.stderr
    return done.returncode, done.stdout.split("\n")[:-1], [json.loads(line) for line in lines]


def test_torch_may_be_looked_up_before_it_is_imported(torch: Path) -> None:
    code, printed, _ = run(
        torch,
        """
        for _ in range(3):
            assert importlib.util.find_spec("torch").origin.endswith("__init__.py")
        print("found")
        import torch
        import torch
        """,
    )
    assert (code, printed) == (0, ["found", "installed 17"])


def test_a_spec_can_be_executed_later_and_again_after_a_failure(torch: Path) -> None:
    code, printed, _ = run(
        torch,
        """
        spec = importlib.util.find_spec("torch")
        sys.modules["torch._C"] = None
        for _ in range(2):
            module = sys.modules["torch"] = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except ImportError:
                print("failed")
                sys.modules.pop("torch")
                sys.modules.pop("torch._C")
        """,
    )
    assert (code, printed) == (0, ["failed", "installed 17"])


def test_a_lazy_torch_is_hooked_when_it_is_used(torch: Path) -> None:
    code, printed, _ = run(
        torch,
        """
        spec = importlib.util.find_spec("torch")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        torch = sys.modules["torch"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(torch)
        import wave
        print("imported")
        print(torch.value)
        """,
    )
    assert (code, printed) == (0, ["imported", "installed 17", "17"])


def test_a_finder_in_front_that_asks_python_is_seen_through(torch: Path) -> None:
    find = "importlib.machinery.PathFinder.find_spec(name, path, target)"
    code, printed, _ = run(torch, FRONT.replace("FIND", find))
    assert (code, printed) == (0, ["installed 17"])


@pytest.mark.parametrize("afterwards", ["", "print('not reached')"])
def test_a_torch_that_is_loaded_past_the_hook_ends_the_rehearsal(torch: Path, afterwards: str) -> None:
    find = f"importlib.util.spec_from_file_location('torch', {str(torch / '__init__.py')!r})"
    code, printed, events = run(torch, FRONT.replace("FIND", find) + "    " + afterwards)
    assert code == 97
    assert printed == []
    assert [event["event"] for event in events] == ["unhooked"]


def test_something_else_of_that_name_goes_on(torch: Path) -> None:
    code, printed, events = run(
        torch,
        """
        import types

        sys.modules["torch"] = types.ModuleType("torch")
        import wave
        print("on")
        """,
    )
    assert (code, printed, events) == (0, ["on"], [])


def test_a_hook_that_cannot_be_installed_ends_the_rehearsal(torch: Path) -> None:
    (torch / "_C.py").write_text("value = property()\n")
    (torch / "__init__.py").write_text("from torch import _C\n")  # has no value to print
    code, _, events = run(torch, "import torch")
    assert code == 97
    assert events[0]["why"].startswith("the hook failed: AttributeError")
