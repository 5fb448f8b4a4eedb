"""A machine in a real notebook, and its card in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import brimful

CHROMIUM = shutil.which("chromium")
EXAMPLES = Path(__file__).parents[2] / "examples/notebooks"
MACHINES = Path(__file__).parents[2] / "fixtures/machines"


@pytest.mark.filterwarnings("ignore:Proactor event loop", "ignore::DeprecationWarning")
def test_a_cell_shows_the_card_and_its_text() -> None:
    source = "import brimful\nbrimful.probe('colab-t4')"
    cell = nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=[cell])  # type: ignore[no-untyped-call]
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    (output,) = notebook.cells[0].outputs
    assert output.data["text/plain"].startswith("Machine(colab-t4: ")
    assert "data:image/svg+xml;base64," in output.data["text/html"]
    nbformat.validate(notebook)


@pytest.mark.filterwarnings("ignore:Proactor event loop", "ignore::DeprecationWarning")
@pytest.mark.parametrize("machine", [None, "colab-t4", "kaggle-t4x2"])
def test_a_cell_trains_in_another_process_and_the_kernel_survives(
    machine: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if machine is not None:
        recorded = (MACHINES / f"{machine}.toml").read_text(encoding="utf-8")
        variables = re.findall(r'^((?:COLAB|KAGGLE)_[A-Z_]+) = "(.*)"$', recorded, re.MULTILINE)
        assert variables
        for name, value in variables:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("BRIMFUL_STATE_DIR", str(tmp_path))
    sources = [
        "import os\nprecious = [1, 2, 3]\n%load_ext brimful",
        "%%brimful --quiet\nprint('sum', sum(precious), flush=True)\nos.kill(os.getpid(), 9)",
        "precious",
        "%%brimful\nimport time\ntime.sleep(1.2)\nprint('slept')",
    ]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    _, trained, after, slept = notebook.cells
    said = "".join(output.text for output in trained.outputs if output.output_type == "stream")
    assert "sum 6" in said
    (card,) = (output for output in trained.outputs if output.output_type == "display_data")
    assert "What to do, cheapest first" in card.data["text/html"]
    (result,) = (output for output in trained.outputs if output.output_type == "execute_result")
    assert "exit code 137" in result.data["text/plain"]
    # Once, as HTML.
    assert "What to do" not in said
    assert after.outputs[0].data["text/plain"] == "[1, 2, 3]"
    # Above the output, as it was at the end, as an image and small.
    picture = slept.outputs[0].data
    assert "ended" in picture["text/plain"]
    assert "data:image/svg+xml;base64," in picture["text/html"]
    assert len(picture["text/html"]) < 10_000


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed here")
def test_the_card_draws_itself_in_a_browser(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    page = tmp_path / "card.html"
    card = brimful.probe("colab-t4")._repr_html_()
    page.write_text(f"<!doctype html><meta charset=utf-8><title>card</title><body>{card}</body>")
    picture = tmp_path / "card.png"
    common = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    common += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    common += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=860,760"]
    subprocess.run(
        [*common, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True, timeout=60
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000
    dumped = subprocess.run(
        [*common, "--dump-dom", page.as_uri()], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    # The browser kept every part where it was: nothing was left open or thrown out.
    assert dumped.count("<img") == card.count("<img")
    assert dumped.count("<details") == card.count("<details")
    assert dumped.rstrip().endswith("</body></html>")


@pytest.mark.filterwarnings("ignore:Proactor event loop", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("my_kernel_died", "an allocation of host memory failed"),
        ("one_copy_of_the_data", "MiB copied by 4 workers"),
        ("watch_a_training", "running False True"),
    ],
)
def test_the_example_notebooks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shown: str
) -> None:
    monkeypatch.setenv("BRIMFUL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", 4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [output.get("text") or output.data["text/plain"] for output in outputs]
    assert any(shown in text for text in texts), texts
