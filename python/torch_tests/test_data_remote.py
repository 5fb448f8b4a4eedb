"""`brimful.data` from an object store: the same batches as from files, and errors that tell no secrets."""

from __future__ import annotations

import gzip
import io
import multiprocessing
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import brimful
import brimful.data as bd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.queues import Queue

    Files = Path | str | list[Path] | list[str] | dict[str, Path] | dict[str, str]

boto3 = pytest.importorskip("boto3", reason="boto3 puts the objects into the store")
server = pytest.importorskip("moto.server", reason="moto is the store")

FIXTURES = Path(__file__).parents[2] / "fixtures"
SECRET = "not-to-be-shown"  # noqa: S105
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


class Bucket:
    """A bucket of a store on the loopback."""

    def __init__(self, endpoint: str) -> None:
        """Make it."""
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="somebody",
            aws_secret_access_key=SECRET,
        )
        self.client.create_bucket(Bucket="data")

    def put(self, path: Path) -> str:
        """Put a file there, and give its URL."""
        key = f"some folder/{path.name}"
        self.client.put_object(Bucket="data", Key=key, Body=path.read_bytes())
        return f"s3://data/{key}"


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT": endpoint, "NO_PROXY": host}.items():
            patch.setenv(name, value)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield Bucket(endpoint)
    store.stop()


def batches(dataset: bd.Dataset, **settings: object) -> list[dict[str, Any]]:
    named = {"batch_size": 3, "shuffle": True, "seed": 7, "memory": "64MiB", "threads": 2, **settings}
    return list(bd.Loader(dataset, **named))


def check(file: Files, url: Files, opened: Callable[[Any], bd.Dataset]) -> None:
    """Hold batches of the object against those of the file, twice over: each epoch has its order."""
    local, remote = opened(file), opened(url)
    assert len(local) > 3
    assert remote.fields == local.fields
    assert remote.reading.startswith("remote: s3://data/")
    for shuffle in [False, True]:
        expected, found = batches(local, shuffle=shuffle), batches(remote, shuffle=shuffle)
        assert len(expected) == len(found)
        for left, right in zip(expected, found, strict=True):
            assert left.keys() == right.keys()
            for name in left:
                assert torch.equal(left[name], right[name]), name


def test_arrays(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "images.npy"
    generator = np.random.default_rng(0)
    np.save(file, generator.integers(0, 255, (20, 3, 80, 90), np.uint8))
    labels = tmp_path / "labels.npy"
    np.save(labels, np.arange(20))
    urls = {"image": bucket.put(file), "label": bucket.put(labels)}
    check({"image": file, "label": labels}, urls, bd.npy)


def test_raw_arrays(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "rows.bin"
    np.arange(5000, dtype=np.float32).tofile(file)
    check(file, bucket.put(file), lambda path: bd.raw(path, [50], "float32"))


def test_tokens(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "tokens.npy"
    np.save(file, np.arange(30_000, dtype=np.uint16))
    url = bucket.put(file)
    for as_int64 in [False, True]:
        check(file, url, lambda path, as_int64=as_int64: bd.tokens(path, 512, as_int64=as_int64))


def test_arrow(bucket: Bucket) -> None:
    file = FIXTURES / "load/table.arrow"
    check(file, bucket.put(file), lambda path: bd.arrow(path, ["id", "grid"]))
    parts = sorted((FIXTURES / "load/huggingface").glob("*.arrow"))
    columns = [name for name, kind in bd.arrow(parts).fields.items() if kind in {"int64", "float32"}]
    check(parts, [bucket.put(part) for part in parts], lambda paths: bd.arrow(paths, columns))


def test_hdf5(bucket: Bucket) -> None:
    for name in ["contiguous.h5", "chunked-latest.h5"]:
        file = FIXTURES / "hdf5" / name
        check(file, bucket.put(file), bd.hdf5)


def test_archives_of_images(bucket: Bucket, tmp_path: Path) -> None:
    image = next((FIXTURES / "load/images").glob("*.png")).read_bytes()
    file = tmp_path / "shard.tar"
    with tarfile.open(file, "w") as archive:
        for number in range(10):
            member = tarfile.TarInfo(f"{number:03}.png")
            member.size = len(image)
            archive.addfile(member, io.BytesIO(image))
    check(
        [file],
        [bucket.put(file)],
        lambda paths: bd.tar(paths, "png").decode("png", max_pixels=1 << 16).resize("png", 16),
    )
    # There is memory for two images of any size to be decoded at once, and for many to be on their way.
    loader = bd.Loader(bd.tar(bucket.put(file), "png").decode("png").resize("png", 16), batch_size=5)
    assert loader.threads >= 32
    assert "threads with 2 scratch buffers" in repr(loader)
    assert [len(batch["png"]) for batch in loader] == [5, 5]
    assert "wait for scratch memory" in loader.statistics.stages
    assert loader.held_bytes < 512 << 20


def test_lines(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert len(bd.lines(bucket.put(file))) == len(bd.lines(file))


def test_what_was_found_in_an_archive_is_kept_without_secrets(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "large.tar"
    with tarfile.open(file, "w") as archive:
        for number in range(300):
            for name, content in ((f"{number}.txt", "x" * 5000), (f"{number}.cls", str(number))):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content.encode()))
    url = bucket.put(file)
    key = f"some folder/{file.name}"
    signed = bucket.client.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": key})
    for address in [url, url, signed, signed]:
        (batch,) = batches(bd.tar(address, "cls").cast("cls", "int64"), batch_size=300, shuffle=False)
        assert batch["cls"].tolist() == list(range(300))
    indexes = list((tmp_path / "cache/brimful/indexes").iterdir())
    assert len(indexes) == 2
    for index in indexes:
        assert oct(index.parent.stat().st_mode)[-3:] == "700"
        words = gzip.decompress(index.read_bytes())
        assert b"large.tar" in words
        assert b"Signature" not in words
        assert SECRET.encode() not in words


def test_an_address_that_is_signed_needs_no_credentials_and_is_not_shown(
    bucket: Bucket, tmp_path: Path
) -> None:
    file = tmp_path / "numbers.npy"
    np.save(file, np.arange(10))
    bucket.put(file)
    key = f"some folder/{file.name}"
    url = bucket.client.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": key})
    assert "Signature=" in url
    dataset = bd.npy(url)
    assert torch.equal(batches(dataset, batch_size=10, shuffle=False)[0]["data"], torch.arange(10))
    assert "Signature=" not in dataset.reading
    with pytest.raises(brimful.MachineError) as caught:
        bd.npy(url.replace("numbers.npy", "nowhere.npy"))
    assert "some%20folder/nowhere.npy" in str(caught.value)
    assert "Signature=" not in str(caught.value)


def test_what_is_not_there_is_told_with_its_address(bucket: Bucket) -> None:
    bucket.put(FIXTURES / "load/f4.npy")
    for url in ["s3://data/nothing.npy", "s3://nobody/x.npy"]:
        with pytest.raises(brimful.MachineError, match=f"failed to read {url}: no such object") as caught:
            bd.npy(url)
        assert SECRET not in str(caught.value)


def test_an_object_that_is_replaced_ends_the_epoch_with_an_error(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "replaced.npy"
    np.save(file, np.zeros((8, 200_000), np.uint8))
    loader = bd.Loader(bd.npy(bucket.put(file)), memory="64MiB", threads=1)
    np.save(file, np.ones((8, 200_000), np.uint8))
    bucket.put(file)
    with pytest.raises(brimful.InputError, match="the object changed after it was opened"):
        list(loader)


def test_too_little_memory_says_what_is_kept(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "small.npy"
    np.save(file, np.arange(10))
    with pytest.raises(brimful.InputError, match="and the dataset keeps"):
        bd.Loader(bd.npy(bucket.put(file)), memory="1MiB")


def opened_before(dataset: bd.Dataset, answers: Queue[Any]) -> None:
    try:
        list(bd.Loader(dataset, memory="64MiB"))
    except brimful.InputError as error:
        answers.put(str(error))


def opened_here(url: str, answers: Queue[Any]) -> None:
    answers.put(sum(len(batch["data"]) for batch in bd.Loader(bd.npy(url), memory="64MiB")))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_off_opens_for_itself(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "forked.npy"
    np.save(file, np.zeros((8, 200_000), np.uint8))
    url = bucket.put(file)
    dataset = bd.npy(url)
    fork = multiprocessing.get_context("fork")
    answers = fork.Queue()
    for target, argument in [(opened_before, dataset), (opened_here, url)]:
        process = fork.Process(target=target, args=(argument, answers))
        process.start()
        answer = answers.get(timeout=60)
        process.join(60)
        assert process.exitcode == 0
        if target is opened_before:
            assert "opened before this process was forked off" in answer
        else:
            assert answer == 8
