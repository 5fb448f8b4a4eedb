"""Daft: sort blocks of tokens by a random key, from Parquet to Parquet."""

import os

import common

os.environ["DAFT_PROGRESS_BAR"] = "0"

import daft
from pyarrow import parquet


def main():
    """Make the dataset."""
    blocks = daft.read_parquet(str(common.DATA / "blocks/*.parquet"))
    blocks.sort("key").exclude("key").write_parquet(str(common.RESULT), compression="none")
    count = sum(parquet.read_metadata(path).num_rows for path in common.RESULT.glob("*.parquet"))
    common.report(samples=count)


if __name__ == "__main__":
    main()
