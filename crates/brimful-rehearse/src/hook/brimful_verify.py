"""The hook inside a real run, for `brimful verify`: counts and times optimizer steps, and measures.

There is no phantom here: the kernels run, and this changes no tensor. The first optimizer that has made the
asked steps decides, as in a rehearsal. Then the process waits, with all of its memory, until the driver has
been asked what it holds; what it says of itself goes to PID.measured in the directory BRIMFUL_VERIFY.
"""

import atexit
import json
import os
import sys
import time

from brimful_common import FOLDER, STEPS, Known, guarded, open_private, tell
from brimful_imports import IMPORTS

# Steps that are not timed: the first ones allocate, compile and choose kernels.
WARM_UP = 3
# The driver is asked once a second; a value is used if it is at least one second younger than the last step.
HELD_SECONDS = 3.0


def wait_for_torch():
    """Call `Measurement.install` when torch has been imported."""
    IMPORTS.after("torch", lambda torch: Measurement(torch).install(), problem)


def problem(text):
    tell(event="problem", text=text)


class Measurement:
    """One process of a real run."""

    def __init__(self, torch):
        self.torch = torch
        self.pid = os.getpid()
        self.steps = Known()  # of each optimizer
        self.most = 0
        self.began = None  # (optimizer's steps, seconds) when the warm-up was over
        self.timed = (0, 0.0)
        self.peaks = {}  # device -> allocated and reserved before the script has reset them
        self.is_written = False

    def problem(self, text):
        problem(text)

    def install(self):
        tell(event="torch", torch=self.torch.__version__)
        from torch.optim import optimizer as module

        self.keep_peaks()
        module.register_optimizer_step_post_hook(lambda optimizer, *_: self.after_step(optimizer))
        atexit.register(self.at_exit)

    @guarded
    def keep_peaks(self):
        """What the process has reached stays known when the script resets it."""
        reset = self.torch._C._cuda_resetPeakMemoryStats

        def resetting(device):
            self.note_peaks(device)
            return reset(device)

        self.torch._C._cuda_resetPeakMemoryStats = resetting

    @guarded
    def note_peaks(self, device):
        stats = self.torch._C._cuda_memoryStats(device)
        before = self.peaks.get(device, (0, 0))
        names = ("allocated_bytes", "reserved_bytes")
        now = [stats[name]["all"]["peak"] for name in names]
        self.peaks[device] = tuple(map(max, before, now))

    # --- steps ---

    def after_step(self, optimizer):
        compiler = getattr(self.torch, "compiler", None)
        is_compiling = getattr(compiler, "is_compiling", None)
        if is_compiling is not None and is_compiling():
            return
        # A forked child, such as a worker with an optimizer of its own, is not what is measured.
        if not self.is_written and os.getpid() == self.pid and self.count(optimizer):
            self.finish()

    @guarded
    def count(self, optimizer):
        """Count a step; whether it was the last one."""
        made = (self.steps.get(optimizer) or 0) + 1
        self.steps.set(optimizer, made)
        if made <= self.most:
            return False
        self.most = made
        tell(event="step", step=min(made, STEPS), of=STEPS, bytes=self.allocated())
        if made == WARM_UP:
            self.began = (made, self.moment())
        elif made == STEPS and self.began is not None:
            self.timed = (made - self.began[0], self.moment() - self.began[1])
        return made >= STEPS

    def moment(self):
        """The time at which the GPU has done what it was asked to do."""
        if self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        return time.monotonic()

    def allocated(self):
        if not self.torch.cuda.is_initialized():
            return 0
        device = self.torch._C._cuda_getDevice()
        return self.torch._C._cuda_memoryStats(device)["allocated_bytes"]["all"]["current"]

    # --- the end ---

    def finish(self):
        """Measure and end the process, as a rehearsal does: nothing of the script runs after this."""
        self.measure("steps")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def at_exit(self):
        if not self.is_written and os.getpid() == self.pid and self.most:
            self.measure("end")

    @guarded
    def measure(self, reason):
        self.is_written = True
        if not self.torch.cuda.is_initialized():
            return
        self.moment()
        devices = [self.device(device) for device in range(self.torch.cuda.device_count())]
        held_from = at_ms()
        time.sleep(HELD_SECONDS)
        rank, world_size = self.world()
        facts = {
            "reason": reason,
            "torch": self.torch.__version__,
            "cuda": self.torch.version.cuda,
            "cudnn": self.torch.backends.cudnn.version(),
            "rank": rank,
            "world_size": world_size,
            "steps": self.most,
            "timed_steps": self.timed[0],
            "timed_seconds": self.timed[1],
            "held_from_ms": held_from,
            "held_until_ms": at_ms(),
            "devices": [device for device in devices if device["peak_reserved_bytes"]],
        }
        path = os.path.join(FOLDER, f"{self.pid}.measured")
        with open(path + ".part", "wb", opener=open_private) as file:
            file.write(json.dumps(facts).encode())
        os.replace(path + ".part", path)

    def device(self, device):
        """What the allocator says of one GPU of this process."""
        self.note_peaks(device)
        allocated, reserved = self.peaks[device]
        stats = self.torch._C._cuda_memoryStats(device)
        return {
            "device": device,
            "peak_allocated_bytes": allocated,
            "peak_reserved_bytes": reserved,
            "reserved_bytes": stats["reserved_bytes"]["all"]["current"],
            "retries": stats.get("num_alloc_retries", 0),
        }

    def world(self):
        distributed = self.torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1


def at_ms():
    """Milliseconds since the start of the attempt, as the run record has them."""
    try:
        began = int(os.environ.get("BRIMFUL_STARTED_NS", ""))
    except ValueError:
        began = 0
    return max(0, time.monotonic_ns() - began) // 1_000_000
