"""Every block of Python in docs/guides/data.md and the README runs, in order, as a reader would type it."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "docs/guides/data.md", ROOT / "README.md"]

pytestmark = pytest.mark.filterwarnings("ignore")


def png(color: int) -> bytes:
    """Return a small picture of one color."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 300, 280, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes([color]) * 900 for _ in range(280)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def make_data(folder: Path) -> None:
    """Write what the guide opens."""
    import h5py

    random = np.random.default_rng(0)
    with h5py.File(folder / "nyu.h5", "w") as file:
        file["images"] = random.integers(0, 256, (20, 3, 64, 48), dtype=np.uint8)
        file["depths"] = random.random((20, 64, 48), dtype=np.float32) + 1
    random.integers(0, 100, 65 * 90, dtype=np.uint16).tofile(folder / "tokens.bin")
    for number, kind in enumerate(("bed", "sofa")):
        (folder / "meshes" / kind / "train").mkdir(parents=True)
        (folder / "meshes" / kind / "train/1.off").write_text("OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 1\n3 0 1 2\n")
        (folder / "photos" / kind).mkdir(parents=True)
        (folder / "photos" / kind / "1.png").write_bytes(png(50 * number))
    make_text(folder)
    if is_there("pyarrow"):
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"label": list(range(50))}), folder / "rows.parquet")


def make_text(folder: Path) -> None:
    """Write documents and a tokenizer of words."""
    words = {word: number for number, word in enumerate(["[END]", "[UNK]", "full", "to", "the", "brim"])}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    lines = (json.dumps({"text": "full to the brim " * number}) + "\n" for number in range(60))
    (folder / "texts.jsonl").write_text("".join(lines))


def is_there(name: str) -> bool:
    """Whether a package is installed."""
    return importlib.util.find_spec(name) is not None


class LanguageModel(torch.nn.Module):
    """Takes what the guide's loader gives."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(100, 4)

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.words(tokens).mean()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_blocks_of_a_document_run(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("h5py", reason="h5py is not installed")
    make_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    steps = []
    names = {
        "__name__": "guide",
        "torch": torch,
        "model": torch.nn.Linear(1, 1),
        "language_model": LanguageModel(),
        "step": lambda *fields: steps.append([len(field) for field in fields]),
    }
    store = f"file://{tmp_path / 'store'}"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        text = document.read_text()
        for block in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            needed = re.findall(r"^(?:import|from) (pyarrow|transformers)", block[1], re.MULTILINE)
            if not all(map(is_there, needed)):
                continue
            line = text[: block.start(1)].count("\n")
            before = len(steps)
            # Its lines in a traceback are those of the document.
            exec(compile("\n" * line + block[1], str(document), "exec"), names)  # noqa: S102
            assert len(steps) > before or "for batch in" not in block[1], line
    finally:
        distributed.destroy_process_group()
