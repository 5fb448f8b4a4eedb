"""Make the data of `compare.py`, once: text with a tokenizer, images, and blocks of tokens.

    python benches/prepare/make_data.py DATA [--text-megabytes 1000] [--images 20000] [--blocks 262144]

Everything is made up from fixed seeds. A part that is already there stays; 0 leaves a part out.
`expected.json` has the number of tokens, images and blocks that every tool must find. Needs numpy, pillow,
pyarrow and tokenizers.
"""

import argparse
import json
import multiprocessing
import pathlib
import shutil

import numpy as np

FILES = 8
WORDS = 60_000
VOCABULARY = 32_000  # tokens
END = "<|end|>"  # id 0
TRAINED_ON = 30_000_000  # characters that the tokenizer is trained on
TABLE = 1 << 22  # entries of the table that random words are drawn from
ROUND = 4_000_000  # words drawn at a time
BLOCK = 2049  # tokens
ROWS = 4096  # blocks in a row group
CLASSES = 10
SIZE = (500, 375)

ONSETS = "b c d f g h j k l m n p r s t v w z br ch cl cr dr fl gr pl pr sh sl st th tr"
RESTS = "a e i o u ai ea ee io ou an en in on er ar or al el \u00e9 \u00fc"

# What follows a word, and how often in 100 words. It decides how the next word is written: after a space,
# after a space with a capital, or with a capital at the start of a line.
MARKS = ["", ",", ".", "?", ".\n"]
SHARES = [86, 7, 4, 1, 2]
AFTER = np.array([0, 0, 1, 1, 2])
START = 2


def vocabulary():
    """Words of one to five syllables; short ones tend to be frequent."""
    random = np.random.default_rng(7)
    syllables = [onset + rest for onset in ONSETS.split() for rest in RESTS.split()]
    words = {}
    while len(words) < WORDS:
        count = 1 + min(4, int(random.geometric(0.5)))
        words["".join(syllables[at] for at in random.integers(0, len(syllables), count))[:14]] = None
    order = np.argsort([len(word) + random.normal(0, 1.5) for word in words])
    listed = list(words)
    return [listed[at] for at in order]


def written(words):
    """Each word in the three ways of writing it, in the order of `AFTER`."""
    return [form for word in words for form in (f" {word}", f" {word.capitalize()}", word.capitalize())]


def word_table():
    """Numbers of words, as frequent as in text (Zipf)."""
    shares = np.cumsum(1 / np.arange(1, WORDS + 1) ** 1.02)
    return np.searchsorted(shares / shares[-1], (np.arange(TABLE) + 0.5) / TABLE).astype(np.int32)


def text_file(task):
    """Write one file; how often each word was written in which way with which mark, and the documents."""
    path, number, size = task
    random = np.random.default_rng([7, number])
    table, forms = word_table(), written(vocabulary())
    pieces = np.array([form + json.dumps(mark)[1:-1] for form in forms for mark in MARKS], dtype=object)
    mark_table = np.repeat(np.arange(len(MARKS)), SHARES)
    counts, documents = np.zeros(len(pieces), dtype=np.int64), 0
    with path.open("wb") as file:
        while size > 0:
            marks = mark_table[random.integers(0, 100, ROUND)]
            lengths = np.clip(random.lognormal(5.9, 1.0, ROUND // 500), 20, 20_000).astype(np.int64)
            ends = np.cumsum(lengths)
            ends = ends[ends <= ROUND].tolist()
            forms_at = AFTER[np.roll(marks, 1)]
            forms_at[[0, *ends[:-1]]] = START
            at = (table[random.integers(0, TABLE, ROUND)] * 3 + forms_at) * len(MARKS) + marks
            for begin, end in zip([0, *ends], ends, strict=False):
                name = f"{number:x}-{documents:x}"
                text = "".join(pieces[at[begin:end]].tolist())
                line = f'{{"id":"{name}","text":"{text}","url":"https://e.example/{name}"}}\n'
                size -= file.write(line.encode())
                documents += 1
                if size <= 0:
                    break
            counts += np.bincount(at[:end], minlength=len(pieces))
    return counts, documents


def train(folder):
    """A byte-level BPE of the first part of the text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    def texts():
        left = TRAINED_ON
        with (folder / "text/part-0.jsonl").open(encoding="utf-8") as file:
            for line in file:
                text = json.loads(line)["text"]
                yield text
                left -= len(text)
                if left <= 0:
                    return

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.save(str(folder / "tok.json"))
    return tokenizer


def make_text(folder, megabytes):
    """Text in JSON lines, and its tokenizer."""
    (folder / "text").mkdir()
    size = megabytes * 1_000_000 // FILES
    tasks = [(folder / f"text/part-{number}.jsonl", number, size) for number in range(FILES)]
    with multiprocessing.Pool() as pool:
        found = pool.map(text_file, tasks, chunksize=1)
    counts = sum(counts for counts, _ in found).reshape(-1, len(MARKS))
    tokenizer = train(folder)
    # Words and marks are tokenized separately, so the tokens of all texts are the sum over their pieces.
    of_forms, of_marks = (
        np.array([len(one.ids) for one in tokenizer.encode_batch(texts, add_special_tokens=False)])
        for texts in (written(vocabulary()), MARKS)
    )
    documents = sum(documents for _, documents in found)
    tokens = int(counts.sum(axis=1) @ of_forms + counts.sum(axis=0) @ of_marks)
    return {"documents": documents, "tokens": tokens + documents}  # each with its end


def textures(count):
    """Smooth noise in several scales, twice as large as an image."""
    from PIL import Image

    random = np.random.default_rng(11)
    width, height = 2 * SIZE[0], 2 * SIZE[1]
    made = []
    for _ in range(count):
        total = np.full((height, width, 3), 128, dtype=np.float32)
        for scale, strength in ((4, 60), (16, 40), (64, 25), (256, 18), (1000, 9)):
            small = random.integers(0, 256, (max(3, scale * 3 // 4), scale, 3), dtype=np.uint8)
            large = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
            total += (np.asarray(large, dtype=np.float32) - 128) * (strength / 64)
        made.append(Image.fromarray(total.clip(0, 255).astype(np.uint8)))
    return made


def image_files(task):
    """Write the images of one class: a mixture of two parts of textures each; a quarter of them upright."""
    from PIL import Image

    folder, number, count = task
    folder.mkdir()
    random = np.random.default_rng([13, number])
    pool = textures(12)
    for image in range(count):
        width, height = SIZE if image % 4 else SIZE[::-1]
        parts = []
        for at in random.choice(len(pool), 2, replace=False).tolist():
            left = int(random.integers(0, pool[at].width - width))
            top = int(random.integers(0, pool[at].height - height))
            parts.append(pool[at].crop((left, top, left + width, top + height)))
        mixed = Image.blend(*parts, float(random.uniform(0.2, 0.8)))
        mixed.save(folder / f"{image:05}.jpg", quality=90)


def make_images(folder, count):
    """JPEG files in folders of classes."""
    (folder / "images").mkdir()
    tasks = [(folder / f"images/class-{number}", number, count // CLASSES) for number in range(CLASSES)]
    with multiprocessing.Pool() as pool:
        pool.map(image_files, tasks, chunksize=1)
    return {"images": count // CLASSES * CLASSES}


def mixed_bits(numbers):
    """The finalizer of splitmix64: keys that look random."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def make_blocks(folder, count):
    """Blocks of tokens with a random key in Parquet, and the same blocks without keys in plain files."""
    import pyarrow as pa
    from pyarrow import parquet

    (folder / "blocks").mkdir()
    random = np.random.default_rng(3)
    kind = pa.binary(2 * BLOCK)
    schema = pa.schema([("key", pa.uint64()), ("tokens", kind)])
    groups = count // ROWS // FILES
    for number in range(FILES):
        path = folder / f"blocks/{number}"
        named = {"compression": "none", "use_dictionary": False}
        with (
            parquet.ParquetWriter(path.with_suffix(".parquet"), schema, **named) as writer,
            path.with_suffix(".bin").open("wb") as plain,
        ):
            for group in range(groups):
                first = (number * groups + group) * ROWS + 1
                keys = mixed_bits(np.arange(first, first + ROWS, dtype=np.uint64))
                data = random.integers(0, VOCABULARY, (ROWS, BLOCK), dtype=np.uint16).tobytes()
                tokens = pa.Array.from_buffers(kind, ROWS, [None, pa.py_buffer(data)])
                writer.write_table(pa.table([keys, tokens], schema=schema), row_group_size=ROWS)
                plain.write(data)
    return {"blocks": groups * FILES * ROWS}


def main():
    """Make the parts that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path, help="the folder to fill")
    parser.add_argument("--text-megabytes", type=int, default=1000)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--blocks", type=int, default=262_144, help="a multiple of 32768")
    asked = parser.parse_args()
    asked.data.mkdir(parents=True, exist_ok=True)
    listed = asked.data / "expected.json"
    expected = json.loads(listed.read_text()) if listed.exists() else {}
    parts = {
        "text": (make_text, "tokens", asked.text_megabytes),
        "images": (make_images, "images", asked.images),
        "blocks": (make_blocks, "blocks", asked.blocks),
    }
    for name, (make, counted, amount) in parts.items():
        if amount == 0 or counted in expected:
            continue
        shutil.rmtree(asked.data / name, ignore_errors=True)  # what an interrupted attempt has left
        expected |= make(asked.data, amount)
        listed.write_text(json.dumps(expected))
        print(name, "made", flush=True)
    print(json.dumps(expected))


if __name__ == "__main__":
    main()
