"""`brimful.share()` with NumPy and torch: arrays without a copy, and workers of every kind."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from shared_samples import Samples
from torch.utils.data import DataLoader, default_collate

import brimful

METHODS = ["fork", "forkserver", "spawn"]


# Processes that are started have torch too.
pytestmark = pytest.mark.usefixtures("children_with_torch")


@pytest.mark.parametrize("method", METHODS)
def test_workers_of_every_kind_read_it(method: str) -> None:
    loader = DataLoader(Samples(), batch_size=16, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert len(batches) == 4
    texts, images, targets, records = batches[1]
    assert texts[0] == "text 16"
    assert torch.equal(images[0].flatten(), torch.arange(16 * 12, 17 * 12).float())
    assert targets.dtype == torch.bfloat16
    assert targets[1] == 17
    assert records["label"].tolist() == list(range(16, 32))
    assert records["box"].shape == (16, 4)
    assert records["mask"].all()


@pytest.mark.parametrize("method", METHODS)
def test_a_shared_list_is_a_dataset(method: str) -> None:
    shared = brimful.share([(torch.tensor([number]), number) for number in range(10)])
    loader = DataLoader(shared, batch_size=5, num_workers=1, multiprocessing_context=method)
    tensors, numbers = next(iter(loader))
    assert tensors.flatten().tolist() == numbers.tolist() == list(range(5))


def test_views_are_collated_like_lists_and_dicts() -> None:
    shared = brimful.share([{"a": [1, 2]}, {"a": [3, 4]}])
    assert {
        key: [part.tolist() for part in value] for key, value in default_collate(list(shared)).items()
    } == {"a": [[1, 3], [2, 4]]}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.int16).reshape(2, 3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(20)[::-2],
        np.zeros((0, 3)),
        np.array(5),
        np.array(["a", "größer"]),
        np.array(["2026-01-01"], dtype="datetime64[D]"),
        np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", ">f8")]),
        np.arange(3, dtype=">i4"),
        np.random.default_rng(1).random(100_000),
    ],
    ids=lambda array: f"{array.dtype}-{array.shape}",
)
def test_arrays_come_back_without_a_copy(array: Any) -> None:  # noqa: ANN401
    shared = brimful.share([array, 1])
    found = shared[0]
    assert type(found) is np.ndarray
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    assert not found.flags.writeable
    assert not found.flags.owndata
    assert found.ctypes.data % 64 == 0 or found.size == 0
    if found.size:
        assert np.shares_memory(found, shared[0])
    with pytest.raises(ValueError, match="read-only"):
        found[...] = array
    del shared
    assert np.array_equal(found, array), "it keeps the copy alive"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24).reshape(2, 3, 4),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.randn(5, dtype=torch.bfloat16),
        torch.randn(50_000, dtype=torch.float16),
        torch.tensor([True, False]),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.randn(3, requires_grad=True),
        torch.randn(8).to(torch.float8_e4m3fn),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.shape)}",
)
def test_tensors_come_back_without_a_copy(tensor: torch.Tensor) -> None:
    shared = brimful.share({"t": tensor})
    found = shared["t"]
    assert found.dtype == tensor.dtype
    assert found.shape == tensor.shape
    assert not found.requires_grad
    expected = tensor.detach().resolve_conj().contiguous().view(torch.uint8) if tensor.dim() else tensor
    assert torch.equal(found.view(torch.uint8) if tensor.dim() else found, expected)
    if tensor.numel():
        assert found.data_ptr() == shared["t"].data_ptr()


def test_writing_to_a_tensor_changes_it_in_this_process_only() -> None:
    shared = brimful.share([torch.zeros(1000)])
    shared[0].fill_(7)
    assert shared[0].sum() == 7000
    code = f"""
        import pickle, brimful
        print(float(pickle.loads(bytes.fromhex("{pickle.dumps(shared).hex()}"))[0].sum()))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "0.0"


def test_an_array_that_is_shared_itself_is_used_like_one() -> None:
    images = np.arange(60, dtype=np.uint8).reshape(5, 3, 4)
    shared = brimful.share(images)
    assert type(shared[2]) is np.ndarray
    assert np.array_equal(shared[1:3, 0], images[1:3, 0])
    assert (len(shared), shared.shape, shared.dtype, shared.ndim) == (5, (5, 3, 4), np.uint8, 3)
    assert np.shares_memory(np.asarray(shared), shared.value)
    assert shared.mean() == images.mean()
    assert np.array_equal(np.stack(shared.__getitems__([0, 4])), images[[0, 4]])
    assert [row.shape for row in shared] == [(3, 4)] * 5
    assert shared.nbytes >= images.nbytes
    assert repr(shared) == f"<SharedArray of uint8 [5, 3, 4] in {shared.nbytes} B>"
    sent = pickle.dumps(shared)
    assert len(sent) < 200
    assert np.array_equal(pickle.loads(sent)[3], images[3])  # noqa: S301


def test_a_tensor_that_is_shared_itself_is_used_like_one() -> None:
    tensor = torch.randn(10, 4)
    shared = brimful.share(tensor)
    assert type(shared[2]) is torch.Tensor
    assert torch.equal(shared.value, tensor)
    assert torch.equal(torch.stack([shared[1], shared[9]]), tensor[[1, 9]])
    assert torch.equal(pickle.loads(pickle.dumps(shared)).value, tensor)  # noqa: S301
    assert torch.equal(brimful.share([shared])[0], tensor)


def test_lists_of_numbers_become_arrays_without_a_copy() -> None:
    for data in ([1, 2, 300], [-5, 2**40], [0.5, 1.5], [True, False]):
        shared = brimful.share(data)
        array = np.asarray(shared)
        assert array.tolist() == data
        assert not array.flags.owndata
        assert np.asarray(shared[::-1]).tolist() == data[::-1]
    assert np.asarray(brimful.share(["a", "b"])).tolist() == ["a", "b"]


def test_numpy_scalars_stay_what_they_are() -> None:
    values = [
        np.int64(-3),
        np.float32(2.5),
        np.bool_(1),
        np.uint8(200),
        np.complex64(1 + 2j),
        np.float16(0.5),
    ]
    shared = brimful.share(values)
    assert shared.tolist() == values
    assert [type(value) for value in shared] == [type(value) for value in values]
    assert brimful.share({5: "a"})[np.int32(5)] == "a"
    assert brimful.share(["a", "b"])[np.int64(1)] == "b"


def test_an_array_that_stands_in_many_places_is_written_once() -> None:
    table = np.zeros(100_000)
    assert brimful.share([table] * 10).nbytes < 2 * table.nbytes
    assert brimful.share(table.copy() for _ in range(10)).nbytes > 9 * table.nbytes
    several = brimful.share([np.full(3, number) for number in range(100)])
    again = brimful.share([several, {"more": several}])
    assert [array[0] for array in again[0]] == [array[0] for array in again[1]["more"]] == list(range(100))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array([object()]), "without Python objects"),
        (np.ma.masked_array([1], [True]), "a plain NumPy array"),
        (torch.nn.Parameter(torch.zeros(1)), "a plain tensor"),
        (torch.zeros(2, 2).to_sparse(), "a dense tensor"),
        (torch.zeros(2, device="meta"), "on the CPU"),
        (np.longdouble(1), "up to 8 bytes"),
    ],
)
def test_arrays_that_cannot_be_shared_are_named(value: object, expected: str) -> None:
    with pytest.raises(brimful.InputError, match=expected) as caught:
        brimful.share([0, {"x": value}])
    assert caught.value.message.endswith("at [1]['x']")
    assert caught.value.hints


def test_daemon_threads_that_read_do_not_hinder_the_end() -> None:
    code = """
    import threading
    import numpy as np
    import brimful

    data = brimful.share([{"box": np.arange(4), "label": np.float32(3), "name": "a"} for _ in range(100)])
    has_begun = threading.Event()

    def read():
        while True:
            for record in data:
                record["box"], record["label"], dict(record.items())
                has_begun.set()

    for _ in range(3):
        threading.Thread(target=read, daemon=True).start()
    has_begun.wait()
    """
    # Before 3.14, Python ends such a thread by unwinding it, through whatever it is in.
    for _ in range(4):
        program = [sys.executable, "-c", textwrap.dedent(code)]
        assert subprocess.run(program, timeout=60, check=False).returncode == 0
