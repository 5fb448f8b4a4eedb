"""DataTrove: tokenize and shuffle blocks within each file, then merge the files in random order."""

import common
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer, DocumentTokenizerMerger


def main():
    """Make the dataset."""
    tokenized = str(common.WORK / "tokenized")
    read = JsonlReader(str(common.DATA / "text"), text_key="text")
    tokenize = DocumentTokenizer(
        output_folder=tokenized,
        tokenizer_name_or_path=common.TOKENIZER,
        eos_token=common.END_TEXT,
        batch_size=common.TEXTS,
        shuffle_documents=False,
        shuffle_chunk_size=common.BLOCK,
        seed=common.SEED,
    )
    merge = DocumentTokenizerMerger(
        input_folder=tokenized,
        output_folder=str(common.RESULT),
        save_filename="blocks",
        shuffle_chunk_size=common.BLOCK,
        max_tokens_per_file=common.SHARD // 2,
        seed=common.SEED,
        progress=False,
    )
    files = len(common.text_files())
    logs = str(common.WORK / "logs")
    LocalPipelineExecutor(
        [read, tokenize], tasks=files, workers=common.PROCESSES, logging_dir=logs + "-tokenize"
    ).run()
    # The merger refuses more than one task.
    LocalPipelineExecutor([merge], tasks=1, logging_dir=logs + "-merge").run()
    tokens = sum(path.stat().st_size for path in common.RESULT.glob("*.ds")) // 2
    common.report(samples=tokens // common.BLOCK, tokens=tokens)


if __name__ == "__main__":
    main()
