"""`brimful.probe()` from an installed wheel."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import brimful

SCHEMA = Path(__file__).parents[2] / "schemas" / "probe.schema.json"


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_import_does_not_pull_in_the_heavy_ones() -> None:
    heavy = run_python(
        "import sys, brimful; print([m for m in ('torch', 'numpy', 'IPython', 'pandas') if m in sys.modules])"
    )
    assert heavy == "[]"


def test_import_starts_nothing() -> None:
    threads = run_python("import brimful, os; print(len(os.listdir('/proc/self/task')))")
    assert threads == "1"


def test_the_document_validates_against_the_checked_in_schema() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(brimful.probe().to_dict())
    for name in brimful.machine_names():
        validator.validate(brimful.probe(name).to_dict())


def test_this_machine_is_read() -> None:
    machine = brimful.probe()
    assert machine.host.physical_bytes is not None
    assert machine.host.physical_bytes > 0
    assert machine.host.headroom_bytes is not None
    assert machine.host.headroom_bytes <= machine.host.physical_bytes
    assert machine.python is not None
    assert machine.python.executable == sys.executable
    assert machine.python.version == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_the_expected_isolation_of_rehearsals_has_its_reason() -> None:
    isolation = brimful.probe().isolation
    assert isolation is not None
    assert isolation.expected in {"overlay", "redirect", "none", None}
    assert (isolation.reason is None) == (isolation.expected is None)
    profile = brimful.probe("colab-t4")
    assert profile.isolation is None
    assert "isolation" in {gap.path for gap in profile.gaps}


def test_attributes_are_those_of_the_document() -> None:
    machine = brimful.probe("kaggle-t4x2")
    document = machine.to_dict()
    assert json.loads(machine.to_json()) == document
    assert machine.host.brim.limit_bytes == document["host"]["brim"]["limit_bytes"]
    assert [gpu.name for gpu in machine.gpus] == ["Tesla T4", "Tesla T4"]
    assert {gap.path for gap in machine.gaps} == {gap["path"] for gap in document["gaps"]}


def test_a_machine_is_frozen_and_comparable() -> None:
    machine = brimful.probe("colab-t4")
    with pytest.raises(dataclasses.FrozenInstanceError):
        machine.schema_version = 2  # type: ignore[misc]
    assert machine == brimful.probe("colab-t4")
    assert machine != brimful.probe("colab-a100")
    assert hash(machine) == hash(brimful.probe("colab-t4"))


def test_a_machine_can_be_copied_and_sent_to_workers() -> None:
    machine = brimful.probe("colab-t4")
    for twin in (copy.deepcopy(machine), pickle.loads(pickle.dumps(machine))):  # noqa: S301
        assert twin == machine
        assert str(twin) == str(machine)


def test_a_machine_shows_itself() -> None:
    machine = brimful.probe("colab-t4")
    assert repr(machine).startswith("Machine(colab-t4: headroom 11.37 GiB of 12.67 GiB, 1 GPU, ")
    assert "12.67 GiB" in str(machine)
    html = machine._repr_html_()
    assert "data:image/svg+xml;base64," in html
    assert "<svg" not in html
    assert "<script" not in html


def test_html_escapes_what_the_machine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "<script>alert(1)</script>")
    html = brimful.probe()._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_another_card_and_another_limit() -> None:
    machine = brimful.probe("k8s-default", gpu="rtx 4090", memory="16GiB")
    assert machine.gpus[0].name == "NVIDIA GeForce RTX 4090"
    assert machine.host.headroom_bytes == 16 << 30
    assert brimful.probe("k8s-default", memory=1 << 30).host.headroom_bytes == 1 << 30


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (
            {"as_machine": "colab-t5"},
            "unknown machine `colab-t5` (did you mean `colab-t4`?)",
            "call `brimful.machine_names()` to list all machines",
        ),
        (
            {"gpu": "rtx-4091"},
            "unknown GPU `rtx-4091` (did you mean `rtx-4090`?)",
            "call `brimful.card_names()` to list all GPU models",
        ),
        ({"memory": "lots"}, "`lots` is not a size; write for example `16GiB`, `512MiB` or `8GB`", None),
        ({"memory": -1}, "`-1` is not a size; write for example `16GiB`, `512MiB` or `8GB`", None),
        (
            {"memory": 16},
            "memory limit 16 B is out of range (1 MiB to 1024 TiB)",
            'add a unit, for example "16GiB"',
        ),
    ],
)
def test_errors_have_hints_in_the_words_of_python(
    arguments: dict[str, str | int], message: str, hint: str | None
) -> None:
    with pytest.raises(brimful.InputError) as caught:
        brimful.probe(**arguments)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)
    assert caught.value.message == message
    assert list(caught.value.hints) == ([] if hint is None else [hint])


def test_every_public_name_is_there() -> None:
    for name in brimful.__all__:
        assert getattr(brimful, name) is not None


def test_torch_is_found_without_being_imported(tmp_path: Path) -> None:
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "version.py").write_text("__version__ = '2.9.1+cu128'\ncuda = '12.8'\nhip = None\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import brimful; "
        "torch = brimful.probe().python.torch; print(torch.version, torch.build)"
    )
    assert run_python(code) == "2.9.1+cu128 CUDA 12.8"


def test_repeated_calls_do_not_leak() -> None:
    code = (
        "import brimful, resource\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for _ in range(50): brimful.probe()._repr_html_()\n"
        "before = peak()\n"
        "for _ in range(300): brimful.probe()._repr_html_()\n"
        "print(peak() - before)\n"
    )
    assert int(run_python(code)) < 2048  # KiB
