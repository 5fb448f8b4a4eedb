"""Capture the operators of one more step, after the memory measurements are written.

The script continues for one step under a dispatch mode (`brimful_ops`), and then ends. Whatever happens in
that step, the process exits without an error: the measurements that it was started for are already written.
"""

import ctypes
import json
import os
import sys
import threading
import time

from brimful_common import PROCESSORS, WITH, guarded, load_part, tell

# How long the script may take to the end of its next step: some evaluate or save before it.
MIN_SECONDS = 3.0
MAX_SECONDS = 20.0
STEPS_WAITED = 4


class Capture:
    """A part of the rehearsal."""

    def may_capture(self):
        if not os.environ.get("BRIMFUL_ISOLATION"):
            return False  # what the script does after its last step would reach the user's own files
        # With `--with` the training loop has ended as if its data had.
        return not WITH and not PROCESSORS and not os.environ.get("BRIMFUL_REHEARSAL_WITHOUT_SPEED")

    def note_step_time(self):
        now = time.monotonic()
        self.step_seconds, self.stepped_at = now - (self.stepped_at or now), now

    @guarded
    def begin_capture(self):
        """Look at every operator from here on; whether that works."""
        launches, notes_names = self.launch_counters()
        ops = load_part("brimful_ops")
        self.batches_before = self.host.batches if self.host is not None else 0
        self.capture = ops.Capture(lambda: self.phase, launches, notes_names)
        self.capture.__enter__()
        seconds = min(max(MIN_SECONDS, self.step_seconds * STEPS_WAITED), MAX_SECONDS)
        timer = threading.Timer(seconds, self.leave_at_once)
        timer.daemon = True
        timer.start()
        return True

    def launch_counters(self):
        """Kernels that the phantom has launched so far, and the switch for recording their names."""
        try:
            phantom = ctypes.CDLL(None)
            launches = ctypes.c_uint64.in_dll(phantom, "BRIMFUL_PHANTOM_LAUNCHES")
            notes_names = ctypes.c_uint64.in_dll(phantom, "BRIMFUL_PHANTOM_NOTES_NAMES")
        except ValueError:  # without CUDA there is no phantom
            return None, None
        return (lambda: launches.value), notes_names

    def end_capture(self):
        """The step is complete: write what it computed."""
        if self.pid != os.getpid():
            return
        try:
            self.capture.__exit__(None, None, None)
            self.put(f"{self.pid}.ops", json.dumps(self.captured_facts()).encode())
        except Exception as error:  # the memory measurements are already written
            tell(event="problem", text=f"the operators of a step could not be written: {error!r}")
        self.leave_at_once()

    def captured_facts(self):
        outside = (self.phantom_report() or {}).get("launched_outside", [])
        return {
            **self.capture.facts(),
            "unexplained": outside,
            **self.tf32(),
            "uncompiled": self.compiled or "uncompiled" in self.caveats,
            "batches": self.host.batches - self.batches_before if self.host is not None else 0,
        }

    def tf32(self):
        """Whether fp32 products and convolutions may use TF32."""
        backends = self.torch.backends
        convolutions = getattr(backends.cudnn, "conv", None)
        return {
            "matmul_tf32": allows_tf32(backends.cuda.matmul, backends.cuda.matmul),
            "convolution_tf32": allows_tf32(convolutions, backends.cudnn),
        }

    def leave_at_once(self):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def allows_tf32(newer, older):
    """Ask the newer switch, then the older one."""
    try:
        return getattr(newer, "fp32_precision", "none") == "tf32" or bool(older.allow_tf32)
    except RuntimeError:  # both kinds of switches were used
        return False
