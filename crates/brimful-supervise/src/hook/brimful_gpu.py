"""CUDA's allocator: figures now and then, and everything it knows when it runs out of memory.

Never initializes CUDA.
"""

import os
import time

from brimful_gauge import (
    ALLOCATED,
    DEVICE,
    DIRECTORY,
    OOMS,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    RESERVED,
    RETRIES,
    TRACE_ALLOCATIONS,
    guarded,
    page,
    text,
)

# Kept: the first two and the last. An error that is caught is common (a search for a batch size; cuDNN trying
# an algorithm that needs much scratch space and falling back on another). It is the last one that ends a
# training; the first one shows the GPU before anybody reacted.
MAX_SNAPSHOTS = 3
# Seconds that may go into snapshots: so many at once, and this share of the time since the first error.
SECONDS_AT_ONCE = 1.0
SHARE = 0.02
# Later ones are told only if they end the process.
MAX_OOM_LINES = 20
LEAST_FREE_DISK = 200 << 20
# About 150 bytes each within PyTorch, and some 400 while a snapshot is made of them.
MAX_EVENTS = 500_000


class Gpu:
    """The GPU of this process, as its allocator sees it."""

    def __init__(self, torch, is_evaluating=None):
        self.torch = torch
        self.is_evaluating = is_evaluating
        self.traced = False
        self.forget()

    def forget(self):
        self.peaks = [0, 0]
        self.counted = {}  # name -> (all so far, the allocator's own count at last)
        self.ooms = 0
        self.first_oom = 0.0
        self.spent = 0.0
        self.observed = False
        self.untold = None

    @guarded
    def install(self):
        # Called at once if CUDA is initialized, else while it is. Attaching an observer would initialize it.
        self.torch.cuda._lazy_call(self.when_ready)

    @guarded
    def when_ready(self):
        if TRACE_ALLOCATIONS:
            self.trace()
        attach = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is not None:
            attach(self.on_oom)
            self.observed = True

    @guarded
    def trace(self):
        record = self.torch.cuda.memory._record_memory_history
        try:
            record("all", context=None, stacks="python", max_entries=MAX_EVENTS)
        except TypeError:  # torch 2.0
            record(True, record_context=False, trace_alloc_max_entries=MAX_EVENTS)
        self.traced = True

    # --- figures ---

    @guarded
    def look(self):
        """The words to put on the page."""
        if not self.torch.cuda.is_initialized():
            return None
        return self.figures(self.torch._C._cuda_getDevice())

    def figures(self, device):
        stats = self.torch._C._cuda_memoryStats(device)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        # A script may reset peaks and counts; what the process has reached stays true.
        self.peaks = [max(self.peaks[0], allocated["peak"]), max(self.peaks[1], reserved["peak"])]
        return {
            DEVICE: device + 1,
            ALLOCATED: allocated["current"],
            RESERVED: reserved["current"],
            PEAK_ALLOCATED: self.peaks[0],
            PEAK_RESERVED: self.peaks[1],
            RETRIES: self.ever("num_alloc_retries", device, stats),
            OOMS: self.ever("num_ooms", device, stats),
        }

    def ever(self, name, device, stats):
        now = stats.get(name, 0)
        so_far, before = self.counted.get((name, device), (0, 0))
        so_far += now - before if now >= before else now
        self.counted[name, device] = (so_far, now)
        return so_far

    # --- out of memory ---

    @guarded
    def on_oom(self, device, asked, total, free):
        """PyTorch is about to raise. It has let go of the allocator's lock and holds the GIL for us."""
        self.ooms += 1
        figures = self.figures(device)
        page.put(figures)
        facts = {
            "device": device,
            "message": "",
            "asked_bytes": asked,
            "allocated_bytes": figures[ALLOCATED],
            "reserved_bytes": figures[RESERVED],
            "free_bytes": free,
            "total_bytes": total,
            "retries": figures[RETRIES],
        }
        if self.is_evaluating is not None:
            facts["evaluating"] = self.is_evaluating()
        began = time.monotonic()
        self.first_oom = self.first_oom or began
        if self.spent < SECONDS_AT_ONCE + SHARE * (began - self.first_oom):
            facts["snapshot"] = self.save()
            self.spent += time.monotonic() - began
        if self.ooms <= MAX_OOM_LINES:
            page.tell("cuda_oom", facts)
        else:
            self.untold = facts

    def tell_untold(self, message):
        """The process ends by an error that came after too many others."""
        if self.untold is not None:
            facts, self.untold = self.untold, None
            facts["message"] = text(message)
            page.tell("cuda_oom", facts, last=True)

    @guarded
    def tell_unobserved(self, message):
        """PyTorch before 2.0 has no observers: what is known when the error ends the process."""
        figures = self.look()
        if figures is not None and not self.observed:
            facts = {
                "device": figures[DEVICE] - 1,
                "message": text(message),
                "allocated_bytes": figures[ALLOCATED],
                "reserved_bytes": figures[RESERVED],
                "retries": figures[RETRIES],
            }
            page.tell("cuda_oom", facts, last=True)

    @guarded
    def save(self):
        """Write the allocator's snapshot; its name within the directory."""
        most = MAX_SNAPSHOTS
        recorded = getattr(self.torch._C, "_cuda_isHistoryEnabled", None)
        if not self.traced and recorded is not None and recorded():
            # The script records stacks. To name their frames may take PyTorch minutes: once is enough.
            most = 1
            if self.ooms > most:
                return None
        directory = os.path.join(DIRECTORY, "snapshots")
        disk = os.statvfs(directory)
        if disk.f_bavail * disk.f_frsize < LEAST_FREE_DISK:
            return None
        import pickle

        snapshot = self.torch.cuda.memory._snapshot()
        name = f"oom-{os.getpid()}-{min(self.ooms, most)}.pickle"
        path = os.path.join(directory, name)
        part = path + ".part"
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                pickle.dump(snapshot, file, protocol=4)
            os.replace(part, path)
        except BaseException:
            os.unlink(part)
            raise
        return "snapshots/" + name
