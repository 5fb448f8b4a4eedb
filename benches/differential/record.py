"""Play random traces on PyTorch's real allocator and write what it did, one JSON line per trace.

Runs on the phantom GPU; started by `cargo xtask differential`, which replays the same events in the model and
compares. Arguments: SCENARIO (JSON: conf, capacity, streams, fraction, kind), FIRST seed, COUNT of traces,
EVENTS per trace.
"""

import json
import random
import sys
import warnings

import torch

MIB = 1 << 20
ROUND_SIZES = (
    512,
    1024,
    MIB,
    MIB + 1,
    2 * MIB,
    10 * MIB,
    10 * MIB - 1,
    20 * MIB,
    64 * MIB,
    128 * MIB,
    200 * MIB,
)


def random_size(chance: random.Random) -> int:
    """Sizes of all regimes: small and large pool, shared and own segments, round ones."""
    kind = chance.random()
    if kind < 0.35:
        return chance.randint(1, 64 * 1024)
    if kind < 0.6:
        return chance.randint(1, MIB)
    if kind < 0.75:
        return chance.randint(MIB, 10 * MIB)
    if kind < 0.9:
        return chance.randint(MIB, 64 * MIB)
    if kind < 0.97:
        return chance.choice(ROUND_SIZES)
    return chance.randint(50 * MIB, 400 * MIB)


def figures() -> list:
    """Allocated, active and reserved bytes now."""
    stats = torch._C._cuda_memoryStats(0)
    return [stats[name]["all"]["current"] for name in ("allocated_bytes", "active_bytes", "reserved_bytes")]


def layout() -> list:
    """Every segment with its blocks."""
    segments = []
    for segment in torch.cuda.memory_snapshot():
        blocks = [[block["size"], block["state"] != "inactive"] for block in segment["blocks"]]
        segments.append([segment["address"], blocks])
    return segments


class Raw:
    """Blocks by the allocator's own entry points."""

    def __init__(self, streams: int) -> None:
        others = [torch.cuda.Stream() for _ in range(streams - 1)]
        self.keep = others
        self.streams = [0] + [stream.cuda_stream for stream in others]

    def alloc(self, size: int, stream: int) -> object:
        return torch._C._cuda_cudaCachingAllocator_raw_alloc(size, stream)

    def free(self, block: object) -> None:
        torch._C._cuda_cudaCachingAllocator_raw_delete(block)


class Tensors:
    """Blocks by tensors, which other streams may be noted on."""

    def __init__(self, streams: int) -> None:
        self.objects = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(streams - 1)]
        self.streams = [stream.cuda_stream for stream in self.objects]

    def alloc(self, size: int, stream: int) -> object:
        with torch.cuda.stream(self.objects[self.streams.index(stream)]):
            return [torch.empty(size, dtype=torch.uint8, device="cuda")]

    def free(self, block: object) -> None:
        block.clear()

    def record(self, block: object, stream: int) -> None:
        block[0].record_stream(self.objects[self.streams.index(stream)])


class Pool:
    """What the last stream allocates comes from a private pool."""

    def __init__(self, source: Tensors) -> None:
        self.handle = torch.cuda.graph_pool_handle()
        with torch.cuda.stream(source.objects[-1]):
            torch._C._cuda_beginAllocateCurrentStreamToPool(0, self.handle)

    def end(self) -> None:
        torch._C._cuda_endAllocateToPool(0, self.handle)

    def release(self) -> None:
        torch._C._cuda_releasePool(0, self.handle)


class Graph:
    """The same by capturing a graph."""

    def __init__(self, source: Tensors) -> None:
        self.graph = torch.cuda.CUDAGraph()
        self.context = torch.cuda.graph(self.graph, stream=source.objects[-1])
        self.context.__enter__()

    def end(self) -> None:
        self.context.__exit__(None, None, None)

    def release(self) -> None:
        self.graph.reset()


def play(source: object, chance: random.Random, count: int, kind: str) -> dict:
    """One random trace on the real allocator."""
    events, after, ooms, layouts, live = [], [], [], {}, []
    number = 0
    free_share = chance.uniform(0.3, 0.55)
    handles, pool = [], 0
    pools = {"pools": Pool, "graphs": Graph}.get(kind)
    capture = None
    for step in range(count):
        draw = chance.random()
        if pools and capture is None and draw < 0.01:
            pool += 1
            capture = pools(source)
            handles.append((pool, capture))
            events.append(["begin", pool])
        elif pools and capture is not None and draw < 0.06:
            capture.end()
            capture = None
            events.append(["end", pool])
        elif pools and capture is None and handles and draw < 0.015:
            which, handle = handles.pop(chance.randrange(len(handles)))
            handle.release()
            events.append(["release", which])
        elif live and chance.random() < free_share:
            index = chance.randrange(len(live)) if chance.random() < 0.5 else len(live) - 1
            which, block = live.pop(index)
            source.free(block)
            events.append(["free", which])
        elif kind == "record" and live and draw > 0.8:
            which, block = live[chance.randrange(len(live))]
            stream = chance.choice(source.streams)
            source.record(block, stream)
            events.append(["record", which, stream])
        elif draw < 0.002 and capture is None:
            torch.cuda.empty_cache()
            events.append(["empty"])
        else:
            size = random_size(chance)
            captured = capture is not None
            stream = source.streams[-1] if captured else chance.choice(source.streams)
            events.append(["alloc", size, stream, pool if captured else 0])
            try:
                live.append((number, source.alloc(size, stream)))
            except torch.OutOfMemoryError:
                ooms.append(step)
            number += 1
        after.append(figures())
        if step % 100 == 99 or step == count - 1:
            layouts[step] = layout()
    if capture is not None:
        capture.end()
        events.append(["end", pool])
        after.append(figures())
    stats = torch.cuda.memory_stats()
    final = {
        "peak_allocated": stats["allocated_bytes.all.peak"],
        "peak_reserved": stats["reserved_bytes.all.peak"],
        "ooms": stats["num_ooms"],
        "retries": stats["num_alloc_retries"],
        "device_allocs": stats["num_device_alloc"],
        "device_frees": stats["num_device_free"],
    }
    for _, block in live:
        source.free(block)
    for _, handle in handles:
        handle.release()
    return {"events": events, "after": after, "ooms": ooms, "layouts": layouts, "final": final}


def main() -> None:
    """Play and print."""
    scenario = json.loads(sys.argv[1])
    first, count, events = (int(argument) for argument in sys.argv[2:5])
    torch.cuda.init()
    torch.cuda.current_stream()
    if scenario.get("fraction"):
        torch.cuda.set_per_process_memory_fraction(scenario["fraction"])
    kind = scenario.get("kind", "raw")
    source = Raw(scenario["streams"]) if kind == "raw" else Tensors(scenario["streams"])
    # A capture without kernels is what is wanted here.
    warnings.filterwarnings("ignore", "The CUDA Graph is empty")
    print(json.dumps({"torch": torch.__version__}))
    for seed in range(first, first + count):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        if torch.cuda.memory_reserved() != 0:
            raise SystemExit(f"seed {seed}: {torch.cuda.memory_reserved()} bytes are still reserved")
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        print(json.dumps(play(source, random.Random(seed), events, kind)))


if __name__ == "__main__":
    main()
