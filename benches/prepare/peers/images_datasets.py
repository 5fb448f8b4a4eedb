"""Hugging Face datasets: a shuffled list of files, decoded and resized in `map`, then saved.

The pixels of an image are one list of fixed length; `Array3D` was not tried.
"""

import os

import common

os.environ["HF_HOME"] = str(common.WORK / "home")

import numpy as np
from datasets import Dataset, Features, List, Value


def small(batch):
    """Decode and resize a batch."""
    images = np.stack([common.small_image(path) for path in batch["path"]])
    return {"image": images.reshape(len(images), -1), "label": batch["label"]}


def main():
    """Make the dataset."""
    paths, labels = zip(*common.shuffled_images(), strict=True)
    length = common.SIDE * common.SIDE * 3
    made = Dataset.from_dict({"path": paths, "label": labels}).map(
        small,
        batched=True,
        batch_size=64,
        writer_batch_size=64,
        num_proc=common.PROCESSES,
        remove_columns=["path"],
        features=Features({"label": Value("int64"), "image": List(Value("uint8"), length=length)}),
        cache_file_name=str(common.WORK / "small.arrow"),
    )
    made.save_to_disk(common.RESULT, max_shard_size=common.SHARD, num_proc=common.PROCESSES)
    common.report(samples=len(made))


if __name__ == "__main__":
    common.WORK.mkdir(parents=True, exist_ok=True)
    main()
