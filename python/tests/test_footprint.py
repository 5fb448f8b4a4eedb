"""What the program itself costs: it is meant to run where memory is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PROGRAM = Path(sys.executable).parent / "brimful"
PIPE_CAPACITY = 65536

# Generous ceilings for a busy machine. On an idle one the program stays under 12 MB and 60 ms. One that was
# built without optimization, as for most tests, is ten times as large and reads more of itself (22 MB).
IS_OPTIMIZED = PROGRAM.stat().st_size < 12 << 20
MAX_RESIDENT_BYTES = 16_000_000 if IS_OPTIMIZED else 26_000_000
MAX_SECONDS = 0.25


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def peak_resident_bytes() -> int:
    """Stop the program in its last write, into a pipe that is full, and ask the kernel for its peak."""
    reader, writer = os.pipe()
    os.write(writer, b"x" * PIPE_CAPACITY)
    process = subprocess.Popen([PROGRAM, "probe"], stdout=writer)
    try:
        deadline = time.monotonic() + 10
        asleep = 0
        while asleep < 10 and time.monotonic() < deadline:
            asleep = asleep + 1 if status_of(process.pid)["State"].startswith("S") else 0
            time.sleep(0.002)
        return int(status_of(process.pid)["VmHWM"].removesuffix(" kB")) * 1024
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)


def seconds_of_one_run() -> float:
    start = time.perf_counter()
    subprocess.run([PROGRAM, "probe"], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def test_probe_is_small_and_quick(capsys: pytest.CaptureFixture[str]) -> None:
    resident = peak_resident_bytes()
    # The best of several: the machine may be busy with something else.
    seconds = min(seconds_of_one_run() for _ in range(10))
    with capsys.disabled():
        print(f"\nbrimful probe: {resident / 1e6:.1f} MB resident at the peak, {seconds * 1e3:.1f} ms")  # noqa: T201
    assert 0 < resident <= MAX_RESIDENT_BYTES
    assert seconds <= MAX_SECONDS
