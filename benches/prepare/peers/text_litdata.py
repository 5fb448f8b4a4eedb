"""litdata: `optimize` with a generator for each file and the loader for tokens. Nothing is shuffled."""

import json
import os

import common

for name in ("DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER"):
    os.environ[name] = str(common.WORK)  # else in the home directory

import litdata  # noqa: E402
import torch  # noqa: E402


def tokens(file):
    """Tokens of a file, a batch of whole blocks at a time."""
    for blocks in common.batches_of_blocks([file]):
        if len(blocks):
            yield torch.from_numpy(blocks.reshape(-1))


def main():
    """Make the dataset."""
    litdata.optimize(
        tokens,
        common.text_files(),
        str(common.RESULT),
        chunk_size=common.SHARD // 2 // common.BLOCK * common.BLOCK,
        num_workers=common.PROCESSES,
        item_loader=litdata.TokensLoader(block_size=common.BLOCK),
        start_method="fork",
        verbose=False,
    )
    index = json.loads((common.RESULT / "index.json").read_text())
    count = sum(chunk["dim"] // common.BLOCK for chunk in index["chunks"])
    common.report(samples=count, tokens=count * common.BLOCK)


if __name__ == "__main__":
    main()
