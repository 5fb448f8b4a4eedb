"""Ray Data: tokenize and cut into blocks with `map_batches`, `random_shuffle`, write Parquet."""

import common
import pyarrow as pa
import ray_session
from ray import data


def blocks(batch, path):
    """Blocks of a batch of documents."""
    made = common.blocks_of(common.tokenizer_of(path), batch["text"].to_pylist())
    flat = pa.array(made.reshape(-1))
    return pa.table({"tokens": pa.FixedSizeListArray.from_arrays(flat, common.BLOCK)})


def main():
    """Make the dataset."""
    with ray_session.session():
        made = data.read_json(common.text_files()).map_batches(
            blocks,
            fn_kwargs={"path": common.TOKENIZER},
            batch_size=1024,
            batch_format="pyarrow",
            zero_copy_batch=True,
        )
        made.random_shuffle(seed=common.SEED).write_parquet(str(common.RESULT), compression="none")
    count = ray_session.rows()
    common.report(samples=count, tokens=count * common.BLOCK)


if __name__ == "__main__":
    main()
