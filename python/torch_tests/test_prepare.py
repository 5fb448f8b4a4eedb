"""`brimful prepare` and `brimful.prepare`: the same shards, however they were made and interrupted."""

import base64
import io
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import brimful
import brimful.data as bd

tokenizers = pytest.importorskip("tokenizers", reason="tokens are compared with those of this library")
Image = pytest.importorskip("PIL.Image", reason="images are made with it")

PROGRAM = Path(sys.executable).parent / "brimful"
WORDS = [f"word{number}" for number in range(500)]
BLOCK = 65
RECIPE = """
source = { lines = "text-*.jsonl", json = "text" }
ops = [{ tokenize = "tok.json", end_id = 0 }]
block = 65
seed = 1
shard = "1MiB"
split = "1MiB"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with text in two files, a tokenizer and a recipe."""
    folder = tmp_path_factory.mktemp("prepare")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=["<|end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    tokenizer.save(str(folder / "tok.json"))
    draw = random.Random(5)  # noqa: S311
    for part in range(2):
        with (folder / f"text-{part}.jsonl").open("w") as file:
            for _ in range(4000):
                words = draw.choices(WORDS, k=draw.randrange(1, 400))
                file.write(json.dumps({"text": " ".join(words)}) + "\n")
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def command(folder: Path, out: Path, *more: str) -> list[str]:
    return [str(PROGRAM), "prepare", str(folder / "recipe.toml"), "--out", str(out), "--json", *more]


def run(folder: Path, out: Path, *more: str) -> dict[str, object]:
    done = subprocess.run(command(folder, out, *more), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, object]:
    """Return what an undisturbed run gives."""
    return run(folder, folder / "whole", "--memory", "256MiB")


def test_every_token_is_there_once(folder: Path, whole: dict[str, object]) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tok.json"))
    expected = np.zeros(2000, np.int64)
    for path in sorted(folder.glob("text-*.jsonl")):
        for line in path.read_text().splitlines():
            expected += np.bincount([*tokenizer.encode(json.loads(line)["text"]).ids, 0], minlength=2000)
    blocks = bd.prepared(folder / "whole", as_int64=True, documents=True)
    assert len(blocks) == whole["samples"]
    found = np.zeros(2000, np.int64)
    for batch in bd.Loader(blocks, batch_size=256, memory="64MiB"):
        tokens = np.asarray(batch["tokens"])
        found += np.bincount(tokens.ravel(), minlength=2000)
        # A document begins behind each end.
        starts = np.asarray(batch["position"])[:, 1:][tokens[:, :-1] == 0]
        assert not starts.any()
    assert whole["documents"] == 8000
    assert whole["tokens"] == expected.sum()
    assert (expected - found >= 0).all()
    assert (expected - found).sum() == whole["dropped_tokens"] < BLOCK


@pytest.mark.parametrize("more", [("--threads", "1"), ("--threads", "8", "--memory", "1GiB")])
def test_threads_and_memory_change_nothing(
    folder: Path, whole: dict[str, object], tmp_path: Path, more: tuple[str, ...]
) -> None:
    assert run(folder, tmp_path / "out", *more)["digest"] == whole["digest"]


def test_python_makes_the_same(folder: Path, whole: dict[str, object], tmp_path: Path) -> None:
    texts = bd.lines(sorted(folder.glob("text-*.jsonl")), json="text")
    made = brimful.prepare(
        texts,
        tmp_path / "out",
        tokenizer=folder / "tok.json",
        end_id=0,
        block=BLOCK,
        seed=1,
        shard="1MiB",
        split="1MiB",
        memory="256MiB",
    )
    assert (made.digest, made.samples) == (whole["digest"], whole["samples"])


def test_a_killed_run_goes_on(folder: Path, whole: dict[str, object], tmp_path: Path) -> None:
    draw = random.Random(3)  # noqa: S311
    out = tmp_path / "out"
    kills = 0
    for _ in range(6):
        process = subprocess.Popen(command(folder, out, "--threads", "1"), stdout=subprocess.DEVNULL)
        try:
            process.wait(draw.uniform(0.3, 1.2))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        if (out / "manifest.json").exists():
            break
        names = [path.name for path in out.glob("shard-*")]
        assert all(".attempt-" in name or (out / name).stat().st_size for name in names)
    assert kills
    assert run(folder, out)["digest"] == whole["digest"]
    assert not (out / ".brimful-prepare").exists()
    assert not list(out.glob("*.attempt-*"))


def test_ctrl_c_says_how_to_go_on(folder: Path, whole: dict[str, object], tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(folder, out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not (out / ".brimful-prepare" / "preparation.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    if process.returncode:
        assert process.returncode == 130
        assert "run the same command again" in errors
    assert run(folder, out)["digest"] == whole["digest"]


def test_what_was_not_asked_for_is_refused(folder: Path, tmp_path: Path) -> None:
    def refused(out: Path, recipe: str = RECIPE) -> str:
        path = folder / "other.toml"
        path.write_text(recipe)
        done = subprocess.run(
            [PROGRAM, "prepare", path, "--out", out], capture_output=True, text=True, check=False
        )
        assert done.returncode in {96, 97}, done.stdout
        assert "Traceback" not in done.stderr
        return done.stderr

    (tmp_path / "thesis.tex").write_text("mine")
    assert "contains other files" in refused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert "with another recipe" in refused(folder / "whole", RECIPE.replace("seed = 1", "seed = 2"))
    assert "unknown field `sede`" in refused(tmp_path / "a", "sede = 1\n" + RECIPE)
    assert "files that match" in refused(tmp_path / "a", RECIPE.replace("text-*", "nothing-*"))
    assert "`tokenize` must have only the options" in refused(
        tmp_path / "a", RECIPE.replace("end_id = 0", "filter = 'bilinear'")
    )
    assert (
        "set the memory budget to at least"
        in subprocess.run(
            command(folder, tmp_path / "a", "--memory", "1MiB"), capture_output=True, text=True, check=False
        ).stderr
    )


def test_a_dataset_that_cannot_be_prepared_as_it_is_is_refused(folder: Path, tmp_path: Path) -> None:
    texts = bd.lines(folder / "text-0.jsonl", json="text")
    with pytest.raises(brimful.InputError, match="`map`"):
        brimful.prepare(texts.map(len), tmp_path / "a", tokenizer=folder / "tok.json", block=BLOCK)
    with pytest.raises(brimful.InputError, match="require `tokenizer`"):
        brimful.prepare(texts, tmp_path / "a", end_id=0)
    with pytest.raises(brimful.InputError, match=r"manifest\.json is missing"):
        bd.prepared(tmp_path)
    (tmp_path / "manifest.json").write_text(
        json.dumps({"version": 1, "shards": [{"file": "../x", "bytes": 1}], "fields": [], "format": "arrow"})
    )
    with pytest.raises(brimful.InputError, match="elsewhere"):
        bd.prepared(tmp_path)
    images = tmp_path / "images"
    images.mkdir()
    (images / "a.txt").write_text("7")
    numbers = bd.folder(images, "txt")
    with pytest.raises(brimful.InputError, match="outside the source"):
        brimful.prepare(numbers.cast(next(iter(numbers.fields)), "int64"), images / "out")
    assert [path.name for path in images.iterdir()] == ["a.txt"]


def test_array_tasks_make_the_same(folder: Path, whole: dict[str, object], tmp_path: Path) -> None:
    out = tmp_path / "out"
    recipe = brimful._native.Recipe.read(folder / "recipe.toml")
    brimful._native.TaskCoordinator(out, recipe).close()

    def task(*words: str) -> str:
        line = [sys.executable, "-m", "brimful._prepare_task", str(out), "--memory", str(128 << 20), *words]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout

    for element in (2, 0, 1):
        task("map", "--element", str(element), "--of", "3")
    task("tails")
    for element in (1, 0):
        task("shard", "--element", str(element), "--of", "2")
    assert json.loads(task("finish"))["manifest"]["digest"] == whole["digest"]
    # A finished dataset of another recipe stays as it is.
    other = folder / "seed.toml"
    other.write_text(RECIPE.replace("seed = 1", "seed = 3"))
    before = sorted(path.name for path in out.iterdir())
    with pytest.raises(brimful.InputError, match="another recipe"):
        brimful._native.TaskCoordinator(out, brimful._native.Recipe.read(other))
    assert sorted(path.name for path in out.iterdir()) == before


def test_a_dry_run_writes_nothing(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = run(folder, out, "--dry-run")
    assert found["map_tasks"] > 4
    assert found["shard_bytes"] > 1 << 20
    assert not out.exists()


def test_a_report_shows_the_first_samples(folder: Path, tmp_path: Path) -> None:
    out, path = tmp_path / "out", tmp_path / "report.html"
    run(folder, out, "--dry-run", "--report", str(path))
    tried = path.read_text()
    assert "will be prepared" in tried
    assert "not started" in tried
    assert not out.exists()
    run(folder, out, "--report", str(path))
    page = path.read_text()
    for text in (tried, page):
        # 8 blocks of 100 tokens, less what is cut.
        shown = re.sub(r"<[^>]*>", " ", text).split()
        assert sum(word in WORDS for word in shown) > 200
    assert "Memory peak" in page
    # The dataset is there; only the report is written again.
    run(folder, out, "--report", str(path))
    assert "Memory peak" not in path.read_text()


def test_a_report_replaces_no_other_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.html"
    path.write_text("<html>mine</html>")
    line = command(folder, tmp_path / "out", "--report", str(path))
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 96
    assert "mine.html" in done.stderr
    assert path.read_text() == "<html>mine</html>"
    assert not (tmp_path / "out").exists()
    line = command(folder, tmp_path / "out", "--report", str(tmp_path / "missing/report.html"))
    done = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 96
    assert "create it" in done.stderr
    assert not (tmp_path / "out").exists()


def test_images_become_shards_and_broken_ones_are_skipped(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(30):
            pixels = draw.integers(0, 255, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{number:03}.png")
    (tmp_path / "images" / "cat" / "broken.png").write_bytes(b"not an image")
    images = bd.folder(tmp_path / "images", "png", labels=True).decode("image").resize("image", 24)
    with pytest.raises(brimful.InputError, match=r"broken\.png"):
        brimful.prepare(images, tmp_path / "raised")
    report = tmp_path / "report.html"
    made = brimful.prepare(
        images, tmp_path / "out", on_error="skip", shard="1MiB", split="1MiB", report=report
    )
    assert (made.samples, made.skipped) == (60, 1)
    page = report.read_text()
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)" width="24" height="24"', page)
    assert len(pictures) == 24
    first = next(iter(bd.Loader(bd.prepared(tmp_path / "out"), batch_size=1)))
    drawn = np.asarray(Image.open(io.BytesIO(base64.b64decode(pictures[0]))))
    assert np.array_equal(drawn, np.asarray(first["image"])[0])
    assert "broken.png" in page
    assert "broken.png" in made.skipped_reasons[0]
    data = bd.prepared(tmp_path / "out")
    assert data.fields == images.fields

    def sums(dataset: bd.Dataset, *, on_error: str) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for batch in bd.Loader(dataset, batch_size=8, on_error=on_error):
            for image, label in zip(np.asarray(batch["image"]), np.asarray(batch["label"]), strict=True):
                key = (int(label), int(image.astype(np.int64).sum()))
                found[key] = found.get(key, 0) + 1
        return found

    assert sums(data, on_error="raise") == sums(images, on_error="skip")


def test_a_full_disk_loses_nothing(folder: Path, whole: dict[str, object], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"file systems cannot be mounted here: {mounted.stderr}")
    try:
        failed = subprocess.run(command(folder, disk / "out"), capture_output=True, text=True, check=False)
        assert failed.returncode == 97
        assert "No space left on device" in failed.stderr
        assert "run the same command again" in failed.stderr
        assert not (disk / "out" / "manifest.json").exists()
        assert not list((disk / "out").rglob("*.attempt-*"))
        subprocess.run(["/bin/mount", "-o", "remount,size=64m", disk], check=True)
        assert run(folder, disk / "out")["digest"] == whole["digest"]
    finally:
        subprocess.run(["/bin/umount", disk], check=True)


def texts_of(out: Path) -> list[int]:
    """Return all tokens of a dataset, sorted."""
    batches = bd.Loader(bd.prepared(out, as_int64=True), batch_size=64, memory="64MiB")
    return sorted(np.concatenate([np.asarray(batch["tokens"]).ravel() for batch in batches]).tolist())


@pytest.mark.parametrize("by", ["id", "name", "index"])
def test_only_what_is_kept_is_prepared(folder: Path, tmp_path: Path, by: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    lines = [json.loads(line) for line in (folder / "text-0.jsonl").read_text().splitlines()[:600]]
    with (tmp_path / "all.jsonl").open("w") as file:
        for number, line in enumerate(lines):
            line |= {"id": number * 7, "name": f"document \u00e9 {number}"}
            file.write(json.dumps(line) + "\n")
    chosen = random.Random(2).sample(range(600), 200)  # noqa: S311
    with (tmp_path / "some.jsonl").open("w") as file:
        for number in sorted(chosen):
            file.write(json.dumps(lines[number]) + "\n")
    ids = {
        "index": chosen,
        "id": [number * 7 for number in chosen],
        "name": [lines[n]["name"] for n in chosen],
    }
    # Most ids are of other datasets, and fill a row group as pyarrow writes it.
    others = {
        "index": range(10**6, 10**6 + 9),
        "id": range(10**7, 10**7 + 1_100_000),
        "name": [f"00000000-0000-0000-0000-{number:012}" for number in range(200_000)],
    }
    parquet.write_table(arrow.table({by: [*ids[by], ids[by][0], *others[by]]}), tmp_path / "keep.parquet")
    recipe = RECIPE.replace("tok.json", str(folder / "tok.json")).replace("block = 65", "block = 1")
    for name in ("all", "some"):
        (tmp_path / f"{name}.toml").write_text(recipe.replace("text-*", name))

    def prepared(name: str, *more: str) -> dict[str, object]:
        line = [PROGRAM, "prepare", tmp_path / f"{name}.toml", "--out", tmp_path / name, "--json", *more]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    kept = prepared("all", "--keep", str(tmp_path / "keep.parquet"))
    assert (kept["documents"], kept["left_out"]) == (200, 400)
    assert prepared("some")["left_out"] == 0
    assert texts_of(tmp_path / "all") == texts_of(tmp_path / "some")
    # Other ids are another dataset.
    parquet.write_table(arrow.table({by: ids[by][:10]}), tmp_path / "keep.parquet")
    line = [PROGRAM, "prepare", tmp_path / "all.toml", "--out", tmp_path / "all"]
    done = subprocess.run(
        [*line, "--keep", tmp_path / "keep.parquet"], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "keep.parquet" in done.stderr


def test_keep_must_name_samples(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow = pytest.importorskip("pyarrow")
    parquet.write_table(arrow.table({"id": [1], "score": [0.5]}), tmp_path / "two.parquet")
    parquet.write_table(arrow.table({"index": [0.5]}), tmp_path / "float.parquet")
    parquet.write_table(arrow.table({"no such field": ["a"]}), tmp_path / "other.parquet")
    for name, expected in [
        ("two", "one column"),
        ("float", "integers or strings"),
        ("other", "no such field"),
        ("missing", "missing.parquet"),
    ]:
        done = subprocess.run(
            command(folder, tmp_path / name, "--keep", str(tmp_path / f"{name}.parquet")),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert expected in done.stderr, done.stderr
