"""The native `brimful` program of an installed wheel."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path
from types import SimpleNamespace

import brimful
from brimful import Footprint

PROGRAM = Path(sys.executable).parent / "brimful"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *arguments], check=False, capture_output=True, text=True)


def test_it_is_native() -> None:
    assert PROGRAM.read_bytes()[:4] == b"\x7fELF"


def test_program_and_package_have_one_version() -> None:
    assert run("--version").stdout.strip() == f"brimful {brimful.__version__}"


def test_program_and_package_say_the_same() -> None:
    assert (
        json.loads(run("probe", "--as", "colab-t4", "--json").stdout) == brimful.probe("colab-t4").to_dict()
    )
    assert run("probe", "--as", "colab-t4").stdout == str(brimful.probe("colab-t4"))


def test_the_python_beside_the_program_is_a_candidate() -> None:
    document = json.loads(run("probe", "--json", "--python", sys.executable).stdout)
    assert document["python"]["executable"] == sys.executable
    assert document["python"]["version"] == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_manual_pages_and_completions_are_installed() -> None:
    installed = {Path(str(file)).name for file in files("brimful") or []}
    assert {"brimful.1", "brimful-probe.1", "_brimful", "brimful.fish"} <= installed


def test_a_footprint_fits_if_one_of_the_gpus_is_large_enough() -> None:
    fits = vars(Footprint)["fits"].fget
    small, large = SimpleNamespace(fits=False), SimpleNamespace(fits=True)
    assert fits(SimpleNamespace(gpus=(small, large)))
    assert fits(SimpleNamespace(gpus=()))
    assert not fits(SimpleNamespace(gpus=(small, small)))
