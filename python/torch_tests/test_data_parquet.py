"""`brimful.data.parquet`: the same batches as from Arrow, inside of a bound that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import brimful
import brimful.data as bd

FILES = Path(__file__).parents[2] / "fixtures/load"
COLUMNS = ["id", "half", "even", "box", "grid", "mask"]


@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_those_of_an_arrow_file(shuffle: bool) -> None:  # noqa: FBT001
    settings = {"batch_size": 3, "shuffle": shuffle, "seed": 3}
    arrow = bd.Loader(bd.arrow(FILES / "table.arrow", COLUMNS), **settings)
    parquet = bd.Loader(bd.parquet(FILES / "table.parquet", COLUMNS), **settings)
    for left, right in zip(arrow, parquet, strict=True):
        assert left.keys() == right.keys()
        for name in left:
            assert torch.equal(left[name], right[name]), name


def test_it_is_said_when_row_groups_do_not_fit() -> None:
    dataset = bd.parquet(FILES / "table.parquet", ["id", "text"])
    assert dataset.fields == {"id": "int64", "text": "text"}
    assert "all fit into the cache of 256 MiB" in dataset.reading
    dataset = bd.parquet([FILES / "table.parquet"] * 20, ["id", "text"], cache="256KiB")
    assert len(dataset) == 140
    assert "convert to Arrow" in dataset.reading
    with pytest.raises(brimful.InputError, match="where the cache has 10 KiB"):
        bd.parquet(FILES / "table.parquet", cache=10 << 10)


def test_the_cache_counts_within_the_memory() -> None:
    dataset = bd.parquet(FILES / "table.parquet", ["id"], cache="64MiB")
    with pytest.raises(brimful.InputError, match=r"and the dataset keeps 64 MiB"):
        bd.Loader(dataset, memory="32MiB")
    assert len(list(bd.Loader(dataset, memory="96MiB"))) == 7


def test_a_column_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(brimful.InputError, match='no field "txt"; available fields are id, even'):
        bd.parquet(FILES / "zstd.parquet", ["txt"])
