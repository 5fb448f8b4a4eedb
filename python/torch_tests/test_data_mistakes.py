"""What new users of `brimful.data` get wrong, and what they are told."""

from __future__ import annotations

import gc
import re
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import brimful
import brimful.data as bd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path) -> bd.Dataset:
    np.save(tmp_path / "x.npy", np.arange(20 * 3 * 8 * 6, dtype=np.uint8).reshape(20, 3, 8, 6))
    return bd.npy({"x": tmp_path / "x.npy"})


def loader_of(dataset: Any, **settings: Any) -> bd.Loader:  # noqa: ANN401
    return bd.Loader(dataset, **{"memory": "1MiB", **settings})


WRONG: list[tuple[Callable[[bd.Dataset], object], str]] = [
    (lambda data: data.resize("image", 4), 'no field "image"; available fields are x'),
    (lambda data: data.resize("x", -1), "`size` must be an integer of at least 1, not -1"),
    (lambda data: data.resize("x", (1, 2, 3)), "must be one integer, or height and width, not (1, 2, 3)"),
    (lambda data: data.transpose("x", (-1, 0, 1)), "`axes` must be an integer of at least 0"),
    (lambda data: data.cast("x", "float"), 'unknown dtype "float"'),
    (lambda data: data.select("x", "x"), "duplicate field in x, x"),
    (lambda data: data.map(3), "`map` requires a function, not 3"),
    (lambda _: bd.npy([]), "expected a path, or a mapping from field names to paths, found []"),
    (lambda _: bd.lines([]), "no path was given"),
    (lambda _: bd.folder(".", ["jpg"]), "expected extensions such as \"jpg\", found ['jpg']"),
    (lambda data: loader_of(data, batch_size=0), "`batch_size` must be an integer of at least 1"),
    (
        lambda data: loader_of(data, threads=0),
        "`threads` must be an integer of at least 1, not 0",
    ),
    (lambda data: loader_of(data, memory=1e9), "`memory` must be an integer of at least 0"),
    (lambda data: loader_of(data, memory="lots"), "`lots` is not a size"),
    (lambda data: loader_of(data, seed=2**64), "`seed` must be an integer"),
    (lambda data: loader_of(data, pin_memory=True, output="numpy"), 'expected `output="torch"`'),
    (
        lambda data: bd.pack(data, "x", "", "", threads=0),
        "`threads` must be an integer of at least 1",
    ),
    (lambda data: loader_of(data, batch_size=32, drop_last=True), "expected at least 32 samples"),
    (lambda _: loader_of([1, 2]), "expected a dataset of `brimful.data`, found list"),
    (lambda data: loader_of(data).set_epoch(-1), "`epoch` must be an integer of at least 0"),
    (
        lambda data: loader_of(data).load_state_dict(None),
        "expected a dict from `state_dict()`, found NoneType",
    ),
    (lambda data: loader_of(data).load_state_dict({}), "expected a state with version 1, found None"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_mistakes_are_told_in_the_words_of_the_user(data: bd.Dataset, number: int) -> None:
    do, message = WRONG[number]
    with pytest.raises(brimful.InputError, match=re.escape(message)):
        do(data)


def test_output_of_what_is_not_there_is_told(data: bd.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(brimful.InputError, match=re.escape('`output="torch"` requires torch')) as raised:
        loader_of(data, output="torch")
    assert raised.value.hints[0] == "install torch"
    assert isinstance(next(iter(loader_of(data)))["x"], np.ndarray)


def test_types_may_be_those_of_numpy_and_torch(data: bd.Dataset) -> None:
    for dtype in ("float32", np.float32, np.dtype("float32"), torch.float32):
        assert data.cast("x", dtype).fields == {"x": "float32 3x8x6"}
    assert data.normalize("x", mean=0.5, std=0.5).fields == {"x": "float32 3x8x6"}


def test_a_state_that_went_through_tensors_is_taken(data: bd.Dataset) -> None:
    state = loader_of(data).state_dict()
    loader_of(data).load_state_dict({name: torch.tensor(value) for name, value in state.items()})


def test_nothing_is_pinned_where_there_is_no_card(data: bd.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="torch sees no GPU"):
        loader = loader_of(data, pin_memory=True)
    assert len(next(iter(loader))["x"]) == 1


def test_a_batch_outlives_its_loader(data: bd.Dataset) -> None:
    loader = loader_of(data, batch_size=20)
    batch = next(iter(loader))["x"]
    expected = batch.sum()
    del loader
    gc.collect()
    assert batch.sum() == expected


def test_batches_that_are_changed_leave_the_file_alone(data: bd.Dataset) -> None:
    loader = loader_of(data, batch_size=4, memory="64KiB")
    sums = []
    for _ in range(2):
        sums.append(0)
        for batch in loader:
            sums[-1] += int(batch["x"].sum())
            batch["x"].zero_()
    assert sums[0] == sums[1] > 0


def test_a_batch_of_which_nothing_is_left_is_not_handed_out(tmp_path: Path) -> None:
    for number in range(6):
        # Two of them are no meshes, and fall into one batch.
        text = "none" if number in {2, 3} else "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 1\n3 0 1 2\n"
        (tmp_path / f"{number}.off").write_text(text)
    meshes = bd.folder(tmp_path, "off").voxelize("mesh", 4)
    loader = bd.Loader(meshes, batch_size=2, on_error="skip")
    assert [len(batch["mesh"]) for batch in loader] == [2, 2]
    assert loader.statistics.skipped == 2
    assert loader.epoch == 1
    other = bd.Loader(meshes, batch_size=2, on_error="skip", rank=1, world_size=3)
    with pytest.raises(brimful.InputError, match="every sample of this batch was skipped"):
        list(other)
    with pytest.raises(brimful.InputError, match=r"2.off, field \"mesh\": voxelize expected"):
        list(bd.Loader(meshes, batch_size=2))
