"""The example notebook that predicts, in a real kernel."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples/notebooks"


@pytest.mark.filterwarnings("ignore:Proactor event loop", "ignore::DeprecationWarning")
def test_a_notebook_finds_the_batch_size_that_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRIMFUL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(EXAMPLES / "which_batch_size_fits.ipynb", 4)
    NotebookClient(notebook, kernel_name="python3", timeout=300).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    lines = [line for output in outputs if "text" in output for line in output.text.splitlines()]
    verdicts = [line.split(":")[1].split()[0] for line in lines if line.startswith("batch size")]
    assert verdicts[0] == "fits"
    assert verdicts[-1] == "does_not_fit"
    (card,) = [output.data["text/html"] for output in outputs if "data" in output]
    assert "data:image/svg+xml;base64," in card
