"""`brimful.data` from an object store: the same batches as from files, and errors that tell no secrets."""

import io
import multiprocessing
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch

import brimful
import brimful.data as bd

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


@pytest.fixture(scope="session")
def bucket():
    """A bucket of a store on the loopback, as a function that puts a file there and gives its URL."""
    store = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    changed = {**ENVIRONMENT, "AWS_ENDPOINT": endpoint, "NO_PROXY": host}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="somebody",
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket="data")

    def put(path):
        key = f"some folder/{path.name}"
        client.put_object(Bucket="data", Key=key, Body=path.read_bytes())
        return f"s3://data/{key}"

    put.client = client
    yield put
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    store.stop()


def batches(dataset, **settings):
    named = {"batch_size": 3, "shuffle": True, "seed": 7, "memory": "64MiB", "threads": 2, **settings}
    return list(bd.Loader(dataset, **named))


def check(file, url, opened):
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


def test_arrays(bucket, tmp_path):
    file = tmp_path / "images.npy"
    generator = np.random.default_rng(0)
    np.save(file, generator.integers(0, 255, (20, 3, 80, 90), np.uint8))
    labels = tmp_path / "labels.npy"
    np.save(labels, np.arange(20))
    urls = {"image": bucket(file), "label": bucket(labels)}
    check({"image": file, "label": labels}, urls, bd.npy)


def test_raw_arrays(bucket, tmp_path):
    file = tmp_path / "rows.bin"
    np.arange(5000, dtype=np.float32).tofile(file)
    check(file, bucket(file), lambda path: bd.raw(path, [50], "float32"))


def test_tokens(bucket, tmp_path):
    file = tmp_path / "tokens.npy"
    np.save(file, np.arange(30_000, dtype=np.uint16))
    url = bucket(file)
    for as_int64 in [False, True]:
        check(file, url, lambda path, as_int64=as_int64: bd.tokens(path, 512, as_int64=as_int64))


def test_arrow(bucket):
    file = FIXTURES / "load/table.arrow"
    check(file, bucket(file), lambda path: bd.arrow(path, ["id", "grid"]))
    parts = sorted((FIXTURES / "load/huggingface").glob("*.arrow"))
    columns = [name for name, kind in bd.arrow(parts).fields.items() if kind in {"int64", "float32"}]
    check(parts, [bucket(part) for part in parts], lambda paths: bd.arrow(paths, columns))


def test_hdf5(bucket):
    for name in ["contiguous.h5", "chunked-latest.h5"]:
        file = FIXTURES / "hdf5" / name
        check(file, bucket(file), bd.hdf5)


def test_archives_of_images(bucket, tmp_path):
    image = next((FIXTURES / "load/images").glob("*.png")).read_bytes()
    file = tmp_path / "shard.tar"
    with tarfile.open(file, "w") as archive:
        for number in range(10):
            member = tarfile.TarInfo(f"{number:03}.png")
            member.size = len(image)
            archive.addfile(member, io.BytesIO(image))
    check([file], [bucket(file)], lambda paths: bd.tar(paths, "png").decode("png").resize("png", 16))


def test_lines(bucket, tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert len(bd.lines(bucket(file))) == len(bd.lines(file))


def test_an_address_that_is_signed_needs_no_credentials_and_is_not_shown(bucket, tmp_path):
    file = tmp_path / "numbers.npy"
    np.save(file, np.arange(10))
    bucket(file)
    key = f"some folder/{file.name}"
    url = bucket.client.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": key})
    assert "Signature=" in url
    dataset = bd.npy(url)
    assert torch.equal(batches(dataset, batch_size=10, shuffle=False)[0]["data"], torch.arange(10))
    assert "Signature=" not in dataset.reading
    with pytest.raises(brimful.MachineError) as caught:
        bd.npy(url.replace("numbers.npy", "nowhere.npy"))
    assert "some%20folder/nowhere.npy cannot be read" in str(caught.value)
    assert "Signature=" not in str(caught.value)


def test_what_is_not_there_is_told_with_its_address(bucket):
    bucket(FIXTURES / "load/f4.npy")
    for url in ["s3://data/nothing.npy", "s3://nobody/x.npy"]:
        with pytest.raises(brimful.MachineError, match=f"{url} cannot be read: there is no such object") as caught:
            bd.npy(url)
        assert SECRET not in str(caught.value)


def test_an_object_that_is_replaced_ends_the_epoch_with_an_error(bucket, tmp_path):
    file = tmp_path / "replaced.npy"
    np.save(file, np.zeros((8, 200_000), np.uint8))
    loader = bd.Loader(bd.npy(bucket(file)), memory="64MiB", threads=1)
    np.save(file, np.ones((8, 200_000), np.uint8))
    bucket(file)
    with pytest.raises(brimful.InputError, match="not what it was when it was opened"):
        list(loader)


def test_too_little_memory_says_what_is_kept(bucket, tmp_path):
    file = tmp_path / "small.npy"
    np.save(file, np.arange(10))
    with pytest.raises(brimful.InputError, match="what the dataset keeps"):
        bd.Loader(bd.npy(bucket(file)), memory="1MiB")


def opened_before(dataset, answers):
    try:
        list(bd.Loader(dataset, memory="64MiB"))
    except brimful.InputError as error:
        answers.put(str(error))


def opened_here(url, answers):
    answers.put(sum(len(batch["data"]) for batch in bd.Loader(bd.npy(url), memory="64MiB")))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_is_forked_off_opens_for_itself(bucket, tmp_path):
    file = tmp_path / "forked.npy"
    np.save(file, np.zeros((8, 200_000), np.uint8))
    url = bucket(file)
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
