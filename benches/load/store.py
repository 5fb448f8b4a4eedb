"""An object store that takes its time: samples per second by the number of requests under way.

python benches/load/store.py [--delay-ms 30] [--samples 2000] [--threads 2,4,8,16,32,default] [--rounds 3]

A server on the loopback answers each request for a range of one file of images (150 kB each) after a delay,
as a store in the same region does. Takes turns between brimful.data with each number of threads, and as many
threads of Python with a connection each that fill the same batches. Then it opens tar files of 20 MB, one and
sixteen of them, whose headers must be read first; and opens them again, with the index that was kept of them.
Last come images of a tar file that are decoded and resized, with the memory that a loader has by default: by
itself, and with as many threads as there is memory to decode in. Needs numpy.
"""

from __future__ import annotations

import argparse
import http.client
import io
import multiprocessing
import os
import random
import re
import statistics
import struct
import sys
import tarfile
import tempfile
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SHAPE = (3, 224, 224)
BATCH = 32


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--delay-ms", type=float, default=30)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--threads", default="2,4,8,16,32,default", help="with commas between them")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    counts = [None if count == "default" else int(count) for count in given.threads.split(",")]
    rates: dict[tuple[str, int | None], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "images.npy"
        images = np.random.default_rng(0).integers(0, 256, (given.samples, *SHAPE), dtype=np.uint8)
        np.save(file, images)
        mine, theirs = multiprocessing.Pipe()
        tars = [_written_tar(Path(folder), number) for number in range(16)]
        _written_images(Path(folder))
        server = multiprocessing.Process(
            target=_serve, args=(Path(folder), given.delay_ms / 1e3, theirs), daemon=True
        )
        server.start()
        port = mine.recv()
        for _ in range(given.rounds):
            for count in counts:
                for loader in (_brimful, _python_threads):
                    if count is None and loader is not _brimful:
                        continue
                    # About four seconds each, whatever the number of threads.
                    most = min(given.samples, int(4e3 / given.delay_ms * (count or 16)))
                    began = time.monotonic()
                    done = loader(port, images, count, most)
                    rate = done / (time.monotonic() - began)
                    rates.setdefault((loader.__name__.strip("_"), count), []).append(rate)
        opening: dict[int, list[tuple[float, float]]] = {1: [], len(tars): []}
        for _ in range(given.rounds):
            for count, seconds in opening.items():
                with tempfile.TemporaryDirectory() as cache:
                    os.environ["XDG_CACHE_HOME"] = cache
                    first = _seconds_to_open(port, tars[:count])
                    seconds.append((first, _seconds_to_open(port, tars[:count])))
        decoding: dict[int | None, list[float]] = {None: [], 2: []}
        for _ in range(given.rounds):
            for count, found in decoding.items():
                found.append(_decoded_per_second(port, count, int(8e3 / given.delay_ms)))
        server.terminate()
    print(f"samples/s, {given.delay_ms:g} ms per request, {given.rounds} rounds in turns\n")
    print("| threads | brimful.data | threads of Python |\n|---|---:|---:|")
    for count in counts:
        cells = [rates.get((name, count)) for name in ("brimful", "python_threads")]
        shown = [f"{statistics.median(found):.0f}" if found else "" for found in cells]
        print(f"| {count or 'default'} | {shown[0]} | {shown[1]} |")
    print()
    for count, seconds in opening.items():
        first, again = map(statistics.median, zip(*seconds, strict=True))
        print(f"{count} tar files of 20 MB opened in {first:.2f} s, again in {again:.2f} s")
    alone, with_two = (statistics.median(found) for found in decoding.values())
    print(f"images decoded and resized: {alone:.0f} samples/s by default, {with_two:.0f} with two threads")
    return 0


def _written_tar(folder: Path, number: int) -> str:
    name = f"{number:02}.tar"
    with tarfile.open(folder / name, "w") as archive:
        for sample in range(200):
            member = tarfile.TarInfo(f"{number:02}{sample:04}.jpg")
            member.size = 100_000
            archive.addfile(member, io.BytesIO(bytes(member.size)))
    return name


def _written_images(folder: Path) -> None:
    """Write 1000 images of 256 x 256 noise, which no format makes smaller."""
    rows = np.random.default_rng(1).integers(0, 256, (256, 1 + 3 * 256), dtype=np.uint8)
    rows[:, 0] = 0  # no filter
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", 256, 256, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows.tobytes(), 1)),
        (b"IEND", b""),
    ]
    image = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    with tarfile.open(folder / "images.tar", "w") as archive:
        for sample in range(1000):
            member = tarfile.TarInfo(f"{sample:04}.png")
            member.size = len(image)
            archive.addfile(member, io.BytesIO(image))


def _decoded_per_second(port: int, n_threads: int | None, samples: int) -> float:
    import brimful.data as bd

    data = bd.tar(f"http://127.0.0.1:{port}/images.tar", "png").decode("png").resize("png", 224)
    loader = bd.Loader(data[:samples], batch_size=BATCH, shuffle=True, threads=n_threads, output="numpy")
    began = time.monotonic()
    done = sum(len(batch["png"]) for batch in loader)
    return done / (time.monotonic() - began)


def _seconds_to_open(port: int, names: list[str]) -> float:
    import brimful.data as bd

    began = time.monotonic()
    data = bd.tar([f"http://127.0.0.1:{port}/{name}" for name in names], "jpg")
    seconds = time.monotonic() - began
    if len(data) != 200 * len(names):
        raise SystemExit(f"expected {200 * len(names)} samples, found {len(data)}")
    return seconds


def _brimful(port: int, _: Any, n_threads: int | None, most: int) -> int:
    import brimful.data as bd

    data = bd.npy({"image": f"http://127.0.0.1:{port}/images.npy"})[:most]
    loader = bd.Loader(
        data, batch_size=BATCH, shuffle=True, memory="64MiB", threads=n_threads, output="numpy"
    )
    return sum(len(batch["image"]) for batch in loader)


def _python_threads(port: int, images: Any, n_threads: int | None, most: int) -> int:
    order = list(range(len(images)))
    random.shuffle(order)
    each = images[0].nbytes
    start = 128  # the header of such a file
    own = threading.local()

    def read(index: int, row: Any) -> None:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection("127.0.0.1", port)
        first = start + index * each
        own.connection.request("GET", "/images.npy", headers={"Range": f"bytes={first}-{first + each - 1}"})
        answer = own.connection.getresponse()
        answer.readinto(row.reshape(-1))
        answer.read()
        if index == order[0] and not np.array_equal(row, images[index]):
            raise SystemExit("expected the sample that was asked for, found other bytes")

    with ThreadPoolExecutor(n_threads) as pool:
        pending = []
        done = 0
        for first in range(0, most, BATCH):
            indices = order[first : min(first + BATCH, most)]
            batch = np.empty((len(indices), *SHAPE), dtype=np.uint8)
            pending.append((batch, [pool.submit(read, *pair) for pair in zip(indices, batch, strict=True)]))
            if len(pending) > 2:
                done += _taken(pending.pop(0))
        return done + sum(map(_taken, pending))


def _taken(made: tuple[Any, list[Any]]) -> int:
    batch, parts = made
    for part in parts:
        part.result()
    return len(batch)


def _serve(folder: Path, delay: float, told: Connection) -> None:
    files = {f"/{file.name}": os.open(file, os.O_RDONLY) for file in folder.iterdir()}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # as stores do; else the end of each answer waits for the client

        def do_HEAD(self) -> None:
            time.sleep(delay)
            self.send_response(200)
            self.send_header("Content-Length", str(os.fstat(files[self.path]).st_size))
            self.send_header("Accept-Ranges", "bytes")
            self.end_headers()

        def do_GET(self) -> None:
            time.sleep(delay)
            opened = files[self.path]
            size = os.fstat(opened).st_size
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "bytes=0-"))
            first = int(wanted[1])
            last = min(int(wanted[2] or size), size - 1)
            self.send_response(206)
            self.send_header("Content-Length", str(last - first + 1))
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("ETag", f'"{self.path}-{size}"')
            self.end_headers()
            self.wfile.flush()
            while first <= last:
                first += os.sendfile(self.connection.fileno(), opened, first, last - first + 1)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.send(server.server_port)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
