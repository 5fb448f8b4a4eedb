"""litdata: `optimize` of a shuffled list of files, decoded and resized."""

import json
import os

import common

for name in ("DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER"):
    os.environ[name] = str(common.WORK)  # else in the home directory

import litdata  # noqa: E402


def small(listed):
    """Decode and resize one image."""
    path, label = listed
    return {"image": common.small_image(path), "label": label}


def main():
    """Make the dataset."""
    litdata.optimize(
        small,
        common.shuffled_images(),
        str(common.RESULT),
        chunk_bytes=common.SHARD,
        num_workers=common.PROCESSES,
        reorder_files=False,
        start_method="fork",
        verbose=False,
    )
    index = json.loads((common.RESULT / "index.json").read_text())
    common.report(samples=sum(chunk["chunk_size"] for chunk in index["chunks"]))


if __name__ == "__main__":
    main()
