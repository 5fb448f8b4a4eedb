"""mosaicml-streaming: each process decodes and resizes a part of a shuffled list of files, to MDS shards."""

import multiprocessing

import common
from streaming import MDSWriter
from streaming.base.util import merge_index


def write(number):
    """Write the part of one process; how many images it has."""
    listed = common.shuffled_images()[number :: common.PROCESSES]
    columns = {"image": f"ndarray:uint8:{common.SIDE},{common.SIDE},3", "label": "int"}
    with MDSWriter(out=str(common.RESULT / f"{number}"), columns=columns, size_limit=common.SHARD) as writer:
        for path, label in listed:
            writer.write({"image": common.small_image(path), "label": label})
    return len(listed)


def main():
    """Make the dataset."""
    with multiprocessing.Pool(common.PROCESSES) as pool:
        count = sum(pool.map(write, range(common.PROCESSES), chunksize=1))
    merge_index(str(common.RESULT), keep_local=True)
    common.report(samples=count)


if __name__ == "__main__":
    main()
