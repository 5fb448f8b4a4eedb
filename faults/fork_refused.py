"""Reserves more address space than the machine has memory, untouched, then starts a worker by fork.

Each reservation is granted; a fork has to promise all of it once more, in one piece, and the kernel refuses.
Dies with `OSError: [Errno 12] Cannot allocate memory`. Needs the default `vm.overcommit_memory = 0`.
"""

import mmap
import multiprocessing
import sys
from pathlib import Path

if Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "0":
    print("vm.overcommit_memory is not 0 here", file=sys.stderr)
    sys.exit(75)

figures = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
memory = sum(int(figures[name].split()[0]) for name in ("MemTotal", "SwapTotal")) << 10
# The kernel joins neighbors into one mapping, larger than all memory.
arena = [mmap.mmap(-1, memory * 4 // 10, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(3)]
worker = multiprocessing.get_context("fork").Process(target=print, args=("started",))
worker.start()
worker.join()
