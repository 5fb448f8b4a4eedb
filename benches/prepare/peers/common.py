"""What the peers share: where things are, reading text and images, and the report.

A peer is called as `python PEER.py DATA OUT`. It writes its dataset to OUT/result and anything temporary to
OUT/work, and prints a line of JSON with what the dataset contains.
"""

import functools
import json
import os
import pathlib
import random
import sys

BLOCK = 2049  # tokens
END, END_TEXT = 0, "<|end|>"  # the token after each document
SIDE = 224  # pixels
PROCESSES = 2
TEXTS = 256  # documents tokenized at a time
SHARD = 64 << 20  # bytes
SEED = 1

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there is a process for each core

# Worker processes of Ray import this file as well, with other arguments.
DATA, OUT = (pathlib.Path(word).resolve() for word in [*sys.argv[1:3], "", ""][:2])
RESULT, WORK = OUT / "result", OUT / "work"
TOKENIZER = str(DATA / "tok.json")


def text_files():
    """Paths of all files of text."""
    return sorted(str(path) for path in (DATA / "text").glob("*.jsonl"))


def shuffled_images():
    """Paths and labels of all images, in random order."""
    classes = sorted(path for path in (DATA / "images").iterdir() if path.is_dir())
    listed = [(str(path), label) for label, folder in enumerate(classes) for path in folder.glob("*.jpg")]
    listed.sort()
    random.Random(SEED).shuffle(listed)
    return listed


def small_image(path):
    """Decode an image and resize it, antialiased. The images are too small for scaled decoding (draft)."""
    import numpy as np
    from PIL import Image

    with Image.open(path) as image:
        small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return np.asarray(small)


@functools.cache
def tokenizer_of(path):
    """Load a tokenizer once in each process."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(path)


def blocks_of(tokenizer, texts):
    """Blocks of a batch of texts as one array; what fills no block is dropped."""
    tokens = tokens_of(tokenizer, texts)
    count = len(tokens) // BLOCK
    return tokens[: count * BLOCK].reshape(count, BLOCK)


def tokens_of(tokenizer, texts):
    """Tokens of texts, with an end after each."""
    import numpy as np

    encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    return np.concatenate([np.asarray([*one.ids, END], dtype=np.uint16) for one in encoded])


def batches_of_blocks(files):
    """Blocks of the text of some files, in arrays of blocks; what is left of a batch begins the next one."""
    import numpy as np
    import orjson

    tokenizer = tokenizer_of(TOKENIZER)
    left, texts = np.empty(0, dtype=np.uint16), []

    def blocks():
        nonlocal left
        tokens = np.concatenate([left, tokens_of(tokenizer, texts)])
        count = len(tokens) // BLOCK
        left = tokens[count * BLOCK :]
        texts.clear()
        return tokens[: count * BLOCK].reshape(count, BLOCK)

    for file in files:
        with open(file, "rb") as lines:  # noqa: PTH123
            for line in lines:
                texts.append(orjson.loads(line)["text"])
                if len(texts) == TEXTS:
                    yield blocks()
    if texts:
        yield blocks()


def report(**counts):
    """Print what was made; the last line on standard output."""
    print(json.dumps(counts), flush=True)
