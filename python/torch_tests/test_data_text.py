"""Text in `brimful.data`: the same tokens as the library `tokenizers`, packing, the bounds of documents."""

import json
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import brimful
import brimful.data as bd

tokenizers = pytest.importorskip("tokenizers", reason="the library that tokens are compared with")

CORPUS = [
    "A job that is full and flat is left alone; one that rises is stopped before the kernel does it.",
    "Memory is counted in bytes: 4096 of them are a page, 1048576 a mebibyte.",
    "Größe und Länge: 日本語のテキスト。 def read(path: Path):\n    return open(path).read()\n",
] * 5
END, PAD = 0, 1


def byte_level() -> object:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>", "<pad>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def word_piece() -> object:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


@pytest.fixture(params=[byte_level, word_piece])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    made = request.param()
    made.save(str(tmp_path / "tokenizer.json"))
    return made


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Documents of all lengths, some of them empty, as JSON Lines."""
    chance = random.Random(5)  # noqa: S311
    words = [word for line in CORPUS for word in line.split(" ")] + [
        "\n\n",
        "  ",
        "<pad>",
        "\U0001f980",
        "e\u0301",
        "",
    ]
    documents = [" ".join(chance.choices(words, k=chance.choice([0, 1, 5, 40, 400]))) for _ in range(300)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return documents


def opened(tmp_path: Path) -> bd.Dataset:
    return bd.lines(tmp_path / "texts.jsonl", json="text")


@pytest.mark.parametrize("threads", [1, 3])
def test_tokens_are_those_of_the_library(
    tmp_path: Path, tokenizer: object, texts: list[str], threads: int
) -> None:
    length = 48
    dataset = opened(tmp_path).tokenize(
        "text", tmp_path / "tokenizer.json", length, mask="attention_mask", pad_id=PAD
    )
    assert dataset.fields == {"text": "int64 48", "attention_mask": "int64 48"}
    loader = bd.Loader(dataset, batch_size=32, threads=threads)
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length, pad_id=PAD)
    expected = tokenizer.encode_batch(texts)
    batches = list(loader)
    ids = torch.cat([batch["text"] for batch in batches])
    assert ids.dtype == torch.int64
    assert ids.tolist() == [one.ids for one in expected]
    mask = torch.cat([batch["attention_mask"] for batch in batches])
    assert mask.tolist() == [one.attention_mask for one in expected]


def test_padding_is_the_tokenizers_own(tmp_path: Path, texts: list[str]) -> None:
    tokenizer = byte_level()
    tokenizer.enable_padding(pad_id=PAD, pad_token="<pad>")  # noqa: S106
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    # A folder with a tokenizer is as good as its file.
    batch = next(iter(bd.Loader(opened(tmp_path).tokenize("text", tmp_path, 4096), batch_size=300)))
    lengths = [len(tokenizer.encode(text).ids) for text in texts]
    assert [int((row != PAD).sum()) for row in batch["text"]] == [
        length - text.count("<pad>") for length, text in zip(lengths, texts, strict=True)
    ]


def test_a_field_is_given_twice(tmp_path: Path, texts: list[str]) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    dataset = (
        opened(tmp_path).copy("text", "short").tokenize("short", tmp_path, 4).tokenize("text", tmp_path, 16)
    )
    batch = next(iter(bd.Loader(dataset, batch_size=len(texts))))
    assert batch["short"].tolist() == batch["text"][:, :4].tolist()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_what_is_packed_is_all_documents_one_after_another(
    tmp_path: Path, tokenizer: object, texts: list[str], threads: int
) -> None:
    path = tmp_path / "tokens.bin"
    packed = bd.pack(opened(tmp_path), "text", tmp_path, path, end_id=END, threads=threads)
    documents = [[*tokenizer.encode(text, add_special_tokens=False).ids, END] for text in texts]
    ids = np.concatenate(documents)
    assert packed == bd.Packed(documents=300, tokens=len(ids), dtype="uint16", path=str(path))
    assert np.fromfile(path, "<u2").tolist() == ids.tolist()
    starts = np.fromfile(f"{path}.documents", "<u8", offset=32)
    assert starts.tolist() == [0, *np.cumsum([len(document) for document in documents]).tolist()]
    assert sorted(file.name for file in tmp_path.glob("tokens*")) == ["tokens.bin", "tokens.bin.documents"]

    length = 100
    dataset = bd.tokens(path, length, documents=True, as_int64=True)
    assert dataset.fields == {"tokens": "int64 100", "document": "int32 100", "position": "int32 100"}
    of_document = np.concatenate([np.full(len(document), at) for at, document in enumerate(documents)])
    positions = np.concatenate([np.arange(len(document)) for document in documents])
    done = 0
    for batch in bd.Loader(dataset, batch_size=7, output="numpy"):
        for block in range(len(batch["tokens"])):
            part = slice(done, done + length)
            _, numbers = np.unique(of_document[part], return_inverse=True)
            assert batch["tokens"][block].tolist() == ids[part].tolist()
            assert batch["document"][block].tolist() == numbers.tolist()
            assert batch["position"][block].tolist() == positions[part].tolist()
            done += length
    assert done == len(ids) // length * length


def test_special_tokens_and_wide_ones(tmp_path: Path, texts: list[str]) -> None:
    tokenizer = word_piece()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = tmp_path / "tokens.bin"
    packed = bd.pack(opened(tmp_path), "text", tmp_path, path, dtype="uint32", special_tokens=True)
    assert packed.dtype == "uint32"
    ids = [one for text in texts for one in tokenizer.encode(text).ids]
    assert np.fromfile(path, "<u4").tolist() == ids
    # The type is in the file beside it.
    batch = next(iter(bd.Loader(bd.tokens(path, 10, documents=True), output="numpy")))
    assert batch["tokens"].dtype == np.uint32
    assert batch["tokens"][0].tolist() == ids[:10]


def test_a_long_document_is_packed_as_a_whole(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    text = " ".join(
        random.Random(1).choices(  # noqa: S311
            ["the", "loader", "reads", "its", "samples", "in", "threads", "4096", "Größe", "日本"], k=200_000
        )
    )
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": text}) + "\n")
    path = tmp_path / "tokens.bin"
    bd.pack(opened(tmp_path), "text", tmp_path, path)
    assert np.fromfile(path, "<u2").tolist() == tokenizer.encode(text).ids


@pytest.mark.usefixtures("texts")
def test_progress_is_told_now_and_then(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    told = []
    bd.pack(
        opened(tmp_path), "text", tmp_path, tmp_path / "a", progress=lambda *numbers: told.append(numbers)
    )
    assert told[-1] == (300, 300)
    bd.pack(opened(tmp_path), "text", tmp_path, tmp_path / "a")
    assert capsys.readouterr().err == ""
    bd.pack(opened(tmp_path), "text", tmp_path, tmp_path / "a", progress=True)
    assert "packing: 300 of 300 documents (100%)" in capsys.readouterr().err


@pytest.mark.usefixtures("texts")
def test_errors_name_the_sample_the_file_and_what_was_expected(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(brimful.MachineError, match=r"failed to read .*nowhere.json"):
        opened(tmp_path).tokenize("text", tmp_path / "nowhere.json", 4)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(brimful.InputError, match=r"other.json: expected a tokenizer, found"):
        opened(tmp_path).tokenize("text", tmp_path / "other.json", 4)
    with (tmp_path / "texts.jsonl").open("a") as file:
        file.write('{"text": 5}\n')
    path = tmp_path / "tokens.bin"
    with pytest.raises(brimful.InputError, match=r"texts.jsonl, object 301 at byte"):
        bd.pack(opened(tmp_path), "text", tmp_path, path)
    assert not list(tmp_path.glob("tokens*"))
    with pytest.raises(brimful.InputError, match=r"memory budget of .* is too small") as raised:
        bd.pack(opened(tmp_path), "text", tmp_path, path, memory="1MiB")
    assert "set `memory` to at least" in raised.value.hints[0]
    with pytest.raises(brimful.InputError, match=r"pack expected text, found int64 4"):
        bd.pack(opened(tmp_path).tokenize("text", tmp_path, 4), "text", tmp_path, path)
    path.write_bytes(b"\0\0" * 10)
    with pytest.raises(brimful.MachineError, match=r"failed to read .*tokens.bin.documents"):
        bd.tokens(path, 2, documents=True)
    (tmp_path / "tokens.bin.documents").write_bytes(b"x" * 100)
    with pytest.raises(
        brimful.InputError, match=r"tokens.bin.documents: expected the documents of a file of tokens"
    ):
        bd.tokens(path, 2, documents=True)


PACKING = """
import sys
import brimful.data as bd
folder = sys.argv[1]
print("begins", flush=True)
bd.pack(bd.lines(folder + "/long.txt"), "text", folder, folder + "/tokens.bin", threads=2)
print("ends", flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_packing_that_is_ended_leaves_nothing_under_its_name(tmp_path: Path, how: str) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    with (tmp_path / "long.txt").open("w") as file:
        file.writelines(f"line {at} of a long text that takes a while to encode\n" for at in range(600_000))
    script = tmp_path / "packing.py"
    script.write_text(textwrap.dedent(PACKING))
    process = subprocess.Popen(
        [sys.executable, script, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # In the background of a shell it is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout.readline() == "begins\n"
    while not (tmp_path / "tokens.bin.part").exists() or not (tmp_path / "tokens.bin.part").stat().st_size:
        time.sleep(0.005)
    began = time.monotonic()
    process.send_signal(how)
    out, err = process.communicate()
    assert time.monotonic() - began < 5
    assert "ends" not in out
    assert not (tmp_path / "tokens.bin").exists()
    if how == signal.SIGINT:
        assert "KeyboardInterrupt" in err
        assert not list(tmp_path.glob("tokens.bin*"))
    # What was left behind is taken over.
    (tmp_path / "long.txt").write_text("one\ntwo\n")
    assert bd.pack(bd.lines(tmp_path / "long.txt"), "text", tmp_path, tmp_path / "tokens.bin").documents == 2
    assert sorted(file.name for file in tmp_path.glob("tokens.*")) == ["tokens.bin", "tokens.bin.documents"]
