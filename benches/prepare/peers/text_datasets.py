"""Hugging Face datasets: tokenize and cut into blocks in one `map`, shuffle by indices, save."""

import os

import common

os.environ["HF_HOME"] = str(common.WORK / "home")

from datasets import Features, List, Value, load_dataset


def blocks(batch):
    """Blocks of a batch of documents."""
    return {"tokens": common.blocks_of(common.tokenizer_of(common.TOKENIZER), batch["text"])}


def main():
    """Make the dataset."""
    texts = load_dataset("json", data_files=common.text_files(), split="train", num_proc=common.PROCESSES)
    made = texts.map(
        blocks,
        batched=True,
        num_proc=common.PROCESSES,
        remove_columns=texts.column_names,
        features=Features({"tokens": List(Value("uint16"), length=common.BLOCK)}),
    )
    made = made.shuffle(seed=common.SEED)
    made.save_to_disk(common.RESULT, max_shard_size=common.SHARD, num_proc=common.PROCESSES)
    common.report(samples=len(made), tokens=len(made) * common.BLOCK)


if __name__ == "__main__":
    main()
