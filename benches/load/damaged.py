"""Parquet files with one flipped bit: who notices. And what it costs to verify the checksums of pages.

python benches/load/damaged.py flips [--flips 1000] [--seed 7]
python benches/load/damaged.py cost [--rounds 15] [--rows 200000]

`flips` writes small files with page checksums, flips one bit at a time, in page data and elsewhere (page
headers, the footer), and reads each file with `brimful.data` and with pyarrow, which verifies checksums too.
It prints how many files gave other data without an error.
`cost` reads the same table with and without checksums in the file, in turns, and prints the CPU time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import brimful.data as bd

# How the files are written: names of settings of pyarrow.
FILES = {
    "zstd, dictionaries": {"compression": "zstd"},
    "plain": {"compression": "none", "use_dictionary": False},
    "snappy, small pages": {"compression": "snappy", "data_page_size": 512, "write_batch_size": 64},
    "version 2, gzip": {"compression": "gzip", "data_page_version": "2.0", "use_dictionary": False},
    "version 2, dictionaries": {"compression": "none", "data_page_version": "2.0"},
}


def table(rows: int) -> pa.Table:
    chance = np.random.default_rng(5)
    vectors = pa.array(chance.standard_normal(rows * 4, dtype="f4"))
    return pa.table(
        {
            "counted": pa.array(np.arange(rows)),
            "repeated": pa.array(np.arange(rows) // 7 % 5),
            "measured": pa.array(chance.standard_normal(rows)),
            "flag": pa.array(np.arange(rows) % 3 == 0),
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 4),
        }
    )


def page_bytes(path: Path) -> list[range]:
    """Return where the bytes of pages are, without their headers."""
    data = path.read_bytes()
    found = []
    metadata = pq.ParquetFile(path).metadata
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            at = chunk.dictionary_page_offset or chunk.data_page_offset
            end = at + chunk.total_compressed_size
            while at < end:
                header, at = structure(data, at)
                found.append(range(at, at + header[3]))
                at += header[3]
    return found


def structure(data: bytes, at: int) -> tuple[dict[int, object], int]:
    """Read a structure of Thrift's compact protocol: its fields by number, and where it ends."""
    fields: dict[int, object] = {}
    number = 0
    while data[at]:
        kind, step = data[at] & 15, data[at] >> 4
        at += 1
        if step:
            number += step
        else:
            number, at = signed(data, at)
        if kind in (1, 2):
            fields[number] = kind == 1
        elif kind in (3, 4, 5, 6):
            fields[number], at = signed(data, at)
        elif kind == 8:
            length, at = unsigned(data, at)
            fields[number], at = data[at : at + length], at + length
        elif kind == 12:
            fields[number], at = structure(data, at)
        else:
            raise ValueError(f"expected a field of a page header, found type {kind}")
    return fields, at + 1


def unsigned(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = unsigned(data, at)
    return (value >> 1) ^ -(value & 1), at


def with_brimful(path: Path) -> object:
    found: dict[str, list[np.ndarray]] = {}
    dataset = bd.parquet(path)
    for batch in bd.Loader(dataset, batch_size=64, memory="600MiB", threads=1, output="numpy"):
        for name, values in batch.items():
            found.setdefault(name, []).append(np.array(values))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def with_pyarrow(path: Path) -> object:
    read = pq.read_table(path, page_checksum_verification=True, use_threads=False)
    found = {}
    for name in read.column_names:
        column = read[name].combine_chunks()
        if column.null_count:
            raise ValueError("nulls, which a batch cannot hold")
        if pa.types.is_fixed_size_list(column.type):
            found[name] = column.flatten().to_numpy().reshape(len(column), -1)
        else:
            found[name] = column.to_numpy(zero_copy_only=False)
    return found


READERS = {"brimful": with_brimful, "pyarrow": with_pyarrow}


def same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


def serve(reader: str, asked: object) -> None:
    """Answer for one path after the other: `same`, `other` or the error."""
    read = READERS[reader]
    sound = None
    while True:
        path = asked.recv()
        try:
            found = read(path)
            if sound is None or path.name == "sound.parquet":
                sound = found
            asked.send("same" if same(found, sound) else "other")
        except Exception as error:  # noqa: BLE001
            asked.send(f"{type(error).__name__}: {error}")


class Reader:
    """A process of its own, since a damaged file may end it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sound: Path | None = None
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.asked, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(self.name, theirs), daemon=True)
        self.process.start()
        theirs.close()
        if self.sound:
            self.answer(self.sound)

    def answer(self, path: Path) -> str:
        if path.name == "sound.parquet":
            self.sound = path
        try:
            self.asked.send(path)
            return self.asked.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            self.start()
            return f"ended with {code}"


def flips(given: argparse.Namespace) -> int:
    chance = random.Random(given.seed)
    readers = [Reader(name) for name in READERS]
    print("| File | Where | Flips |", " | ".join(f"{name}: other data" for name in READERS), "|")
    print("|---|---|---|", "---|" * len(READERS))
    sums: dict[str, list[int]] = {}
    for kind, settings in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "sound.parquet")
            pq.write_table(table(400), path, row_group_size=150, write_page_checksum=True, **settings)
            sound = path.read_bytes()
            pages = {at for page in page_bytes(path) for at in page}
            for reader in readers:
                if (answer := reader.answer(path)) != "same":
                    raise RuntimeError(f"{reader.name}: {answer}")
            places = {"page data": sorted(pages), "elsewhere": sorted(set(range(len(sound))) - pages)}
            for where, offsets in places.items():
                count = given.flips // len(FILES)
                wrong = dict.fromkeys(READERS, 0)
                for _ in range(count):
                    damaged = bytearray(sound)
                    at, bit = chance.choice(offsets), chance.randrange(8)
                    damaged[at] ^= 1 << bit
                    other = Path(folder, "damaged.parquet")
                    other.write_bytes(damaged)
                    answers = {reader.name: reader.answer(other) for reader in readers}
                    for name, answer in answers.items():
                        wrong[name] += answer == "other"
                    if given.verbose and "other" in answers.values():
                        print(f"{kind}, byte {at} of {len(sound)}, bit {bit}: {answers}", file=sys.stderr)
                print(
                    f"| {kind} | {where} | {count} |", " | ".join(map(str, wrong.values())), "|", flush=True
                )
                sums[where] = [
                    a + b
                    for a, b in zip(
                        sums.get(where, [0] * (1 + len(READERS))), [count, *wrong.values()], strict=True
                    )
                ]
    for where, (count, *wrong) in sums.items():
        print(f"| all | {where} | {count} |", " | ".join(map(str, wrong)), "|")
    for reader in readers:
        reader.process.terminate()
    return 0


def epoch(path: Path) -> float:
    """Return the CPU seconds of the process for one epoch, with all of its threads."""
    loader = bd.Loader(bd.parquet(path), batch_size=256, memory="1GiB", output="numpy")
    before = resource.getrusage(resource.RUSAGE_SELF)
    for _ in loader:
        pass
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def wide(rows: int) -> pa.Table:
    """Return samples of a kilobyte: an embedding, whose bytes do not compress, and two labels."""
    chance = np.random.default_rng(5)
    vectors = pa.array(chance.standard_normal(rows * 256, dtype="f4"))
    return pa.table(
        {
            "vector": pa.FixedSizeListArray.from_arrays(vectors, 256),
            "label": pa.array(np.arange(rows) % 1000),
            "weight": pa.array(chance.standard_normal(rows)),
        }
    )


def cost(given: argparse.Namespace) -> int:
    kinds = {
        "zstd": {"compression": "zstd"},
        "snappy, pyarrow's default": {"compression": "snappy"},
        "not compressed, no dictionaries": {"compression": "none", "use_dictionary": False},
    }
    print("| File | Size | CPU without | CPU with checksums | Ratio | Ratios of rounds |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        rows = wide(given.rows)
        for kind, settings in kinds.items():
            paths = [Path(folder, f"{has}.parquet") for has in (False, True)]
            for has, path in zip((False, True), paths, strict=True):
                pq.write_table(rows, path, row_group_size=20_000, write_page_checksum=has, **settings)
            times: list[list[float]] = [[], []]
            for turn in range(given.rounds + 1):
                # Who is first changes; the first round fills the page cache.
                for which in (0, 1) if turn % 2 else (1, 0):
                    spent = epoch(paths[which])
                    if turn:
                        times[which].append(spent)
            ratios = sorted(have / have_not for have_not, have in zip(*times, strict=True))
            middle = [statistics.median(part) for part in times]
            size = paths[0].stat().st_size / 2**20
            print(
                f"| {kind} | {size:.0f} MiB | {middle[0]:.3f} s | {middle[1]:.3f} s "
                f"| {statistics.median(ratios):.3f} | {ratios[0]:.2f} to {ratios[-1]:.2f} |",
                flush=True,
            )
    return 0


def main() -> int:
    """Run one of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, run in [("flips", flips), ("cost", cost)]:
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        if name == "flips":
            command.add_argument(
                "--flips", type=int, default=1000, help="in page data, and as many elsewhere"
            )
            command.add_argument("--seed", type=int, default=7)
            command.add_argument("--verbose", action="store_true", help="name each flip that gave other data")
        else:
            command.add_argument("--rounds", type=int, default=15)
            command.add_argument("--rows", type=int, default=200_000)
    given = parser.parse_args()
    return given.run(given)


if __name__ == "__main__":
    sys.exit(main())
