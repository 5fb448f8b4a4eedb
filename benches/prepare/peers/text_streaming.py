"""mosaicml-streaming: each process tokenizes some files and writes MDS shards. Nothing is shuffled."""

import multiprocessing

import common
from streaming import MDSWriter
from streaming.base.util import merge_index


def write(number):
    """Write the part of one process; how many blocks it has."""
    count = 0
    columns = {"tokens": f"ndarray:uint16:{common.BLOCK}"}
    with MDSWriter(out=str(common.RESULT / f"{number}"), columns=columns, size_limit=common.SHARD) as writer:
        for blocks in common.batches_of_blocks(common.text_files()[number :: common.PROCESSES]):
            for block in blocks:
                writer.write({"tokens": block})
            count += len(blocks)
    return count


def main():
    """Make the dataset."""
    with multiprocessing.Pool(common.PROCESSES) as pool:
        count = sum(pool.map(write, range(common.PROCESSES), chunksize=1))
    merge_index(str(common.RESULT), keep_local=True)
    common.report(samples=count, tokens=count * common.BLOCK)


if __name__ == "__main__":
    main()
