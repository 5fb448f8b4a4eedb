"""Turn the recorded allocator events of a ground-truth directory into trace files.

python traces.py TRUTH OUT: for each recorded snapshot OUT/ID.brimtrace and OUT/ID.json, its final layout.
The trace format is described in crates/brimful-allocsim/src/format.rs.
"""

import collections
import json
import pathlib
import sys

import pyarrow.parquet as pq

ALLOC, FREE, EMPTY_CACHE, SEGMENT_ALLOC, SEGMENT_FREE = 0, 2, 5, 10, 11


class Writer:
    """LEB128 numbers and texts."""

    def __init__(self) -> None:
        self.out = bytearray(b"BRIMTRACE1")

    def number(self, value: int) -> None:
        while value >= 0x80:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)

    def text(self, value: str) -> None:
        encoded = value.encode()
        self.number(len(encoded))
        self.out += encoded

    def difference(self, last: int, value: int) -> int:
        step = value - last
        self.number(step << 1 if step >= 0 else (-step << 1) - 1)
        return value


def rows(truth: pathlib.Path, name: str) -> dict:
    """The rows of one table, by snapshot."""
    by_snapshot = collections.defaultdict(list)
    for row in pq.read_table(truth / "snapshots" / f"{name}.parquet").to_pylist():
        by_snapshot[row["snapshot"]].append(row)
    return by_snapshot


def convert(facts: dict, segments: list, blocks: list, events: list) -> bytes:
    """One trace file."""
    allocations = []
    live = {}
    by_segment = collections.defaultdict(list)
    for block in sorted(blocks, key=lambda b: b["address"]):
        live[block["address"]] = len(allocations)
        by_segment[block["segment"]].append(len(allocations))
        allocations.append((block["address"], block["requested_size"], block["size"]))
    recorded = []
    out = []
    burst = False
    for event in sorted(events, key=lambda e: e["i"]):
        action, address = event["action"], event["addr"]
        if action == "segment_free" and not burst:
            out.append((EMPTY_CACHE, None))
        burst = action == "segment_free"
        if action == "alloc":
            live[address] = len(allocations)
            out.append((ALLOC, len(allocations)))
            allocations.append((address, event["size"], 0))
        elif action == "free_completed":
            out.append((FREE, live.pop(address)))
        elif action in ("segment_alloc", "segment_free"):
            out.append((SEGMENT_ALLOC if action == "segment_alloc" else SEGMENT_FREE, len(recorded)))
            recorded.append((address, event["size"]))
    file = Writer()
    file.text(facts["torch_version"].split()[0])
    file.text("")
    file.number(0)
    file.number(0)
    file.number(len(recorded))
    last = 0
    for address, size in recorded:
        last = file.difference(last, address)
        file.number(size)
    file.number(len(allocations))
    last = 0
    for address, requested, block in allocations:
        last = file.difference(last, address)
        for value in (requested, block, 0, 0):
            file.number(value)
    file.number(len(segments))
    for segment in sorted(segments, key=lambda s: s["address"]):
        inside = by_segment[segment["address"]]
        small = int(segment["segment_type"] == "small")
        for value in (segment["address"], segment["total_size"], 0, small, 0, len(inside)):
            file.number(value)
        for value in inside:
            file.number(value)
    file.number(len(out))
    for kind, value in out:
        file.out.append(kind)
        if value is not None:
            file.number(value)
    return bytes(file.out)


def layout_of(blocks: list) -> list:
    """Segments, each with the sizes of its blocks and whether they are in use."""
    layout = collections.defaultdict(list)
    for block in sorted(blocks, key=lambda b: b["address"]):
        layout[block["segment"]].append([block["size"], block["state"] != "inactive"])
    return sorted(layout.items())


def main() -> None:
    """Convert every snapshot; a line of JSON for each that cannot be."""
    truth, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    names = ("events", "initial_segments", "initial_blocks", "final_blocks")
    events, segments, blocks, final = (rows(truth, name) for name in names)
    for facts in json.loads((truth / "snapshots" / "metadata.json").read_text()):
        name = facts["id"]
        if not events[name]:
            print(json.dumps({"id": name, "skip": "no events"}))
            continue
        try:
            trace = convert(facts, segments[name], blocks[name], events[name])
            expected = {
                "segments": layout_of(final[name]),
                "peak_allocated_bytes": facts["peak"]["allocated_bytes"],
                "peak_reserved_bytes": facts["peak"]["reserved_bytes"],
            }
        except (KeyError, TypeError, ValueError) as error:
            print(json.dumps({"id": name, "skip": f"{type(error).__name__}: {error}"}))
            continue
        (out / f"{name}.brimtrace").write_bytes(trace)
        (out / f"{name}.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    main()
