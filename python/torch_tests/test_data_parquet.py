"""`brimful.data.parquet`: the same batches as from Arrow, inside of a bound that is said."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
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


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_flipped_bits_of_pages_with_checksums_are_errors(tmp_path: Path, version: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    labels = np.arange(400) * 1_000_003
    settings = {"compression": "none", "use_dictionary": False, "data_page_version": version}
    rows = arrow.table({"label": labels, "score": labels / 7})
    parquet.write_table(rows, path, row_group_size=100, write_page_checksum=True, **settings)
    sound = path.read_bytes()
    chance = random.Random(4)  # noqa: S311
    for _ in range(50):
        group = chance.randrange(4)
        part = labels[group * 100 : group * 100 + 100].tobytes()
        damaged = bytearray(sound)
        damaged[sound.index(part) + chance.randrange(len(part))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(brimful.InputError, match='column "label" that match their checksums'):
            list(bd.Loader(bd.parquet(path), batch_size=50))
        loader = bd.Loader(bd.parquet(path), batch_size=50, on_error="skip")
        found = torch.cat([batch["label"] for batch in loader])
        assert found.tolist() == [label for row, label in enumerate(labels.tolist()) if row // 100 != group]
        assert loader.statistics.skipped == 100
