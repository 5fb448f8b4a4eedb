"""The rehearsal where torch was built without CUDA: the weaker figure.

The script sees a card, its tensors there are shapes without values (`brimful_fake`), and what PyTorch's own
operators allocate is recorded. What CUDA's kernels and libraries take besides is not seen.
"""

import atexit
import os
import pickle
import sys

import brimful_fake
import brimful_fake_cuda
from brimful_branches import LAUNCHERS
from brimful_common import WITH, guarded, tell
from brimful_ledger import Ledger
from brimful_rehearsal import Rehearsal

# They start several processes, or want NCCL.
REFUSED = [launcher for launcher in LAUNCHERS if launcher != "accelerate"]


class Fallback(Rehearsal):
    """One training process under observation, without CUDA."""

    def __init__(self, torch):
        super().__init__(torch)
        self.version = torch.__version__
        self.ledger = Ledger()
        self.stand_in = None
        self.description = None
        self.plain_types = (torch.Tensor, brimful_fake.FakeTensor)

    def install(self):
        tell(event="no-cuda", torch=self.version)
        command = getattr(sys, "orig_argv", sys.argv)[:4]
        several = int(os.environ.get("WORLD_SIZE", "1") or "1") > 1
        if several or any(os.path.basename(part) in REFUSED for part in command):
            self.refuse_several()
        if not hasattr(self.torch._C, "_ensureCUDADeviceGuardSet"):
            self.refuse("a release before 2.10")
        self.branch_out()
        try:
            self.take_the_stage()
        except Exception as error:
            self.refuse(f"a torch in which the stand-in finds no place: {error!r}")
        tell(event="torch", torch=self.version)
        self.stack_reporter.start()
        self.watch_host()
        self.watch_optimizers()
        self.watch_modules()
        self.watch_autograd()
        self.watch_calls()
        self.run_uncompiled()
        self.assume_losses_are_finite()
        self.refuse_process_groups()
        if WITH:
            self.shorten_loaders()
        atexit.register(self.at_exit)

    def try_in_turn(self, descriptions):
        """Nothing runs out here: once, with endless room."""
        self.description = descriptions[-1]

    def take_the_stage(self):
        description = self.description or os.environ.get("BRIMFUL_PHANTOM_DEVICES", "")
        card = brimful_fake_cuda.Card(description)
        if card.count > 1:
            self.refuse("several cards for one process")
        brimful_fake_cuda.answer_for(card, self.ledger, self.start_recording)
        self.stand_in = brimful_fake.StandIn(self.ledger, card, self.caveat, self.unsupported)
        self.stand_in.install()
        self.remember_choice(description)

    def unsupported(self, what):
        tell(event="unsupported", torch=self.version, what=what)

    def refuse_several(self):
        self.refuse("several processes (torchrun, DistributedDataParallel)")

    def refuse(self, found):
        """Training on the processor instead would take long and tell nothing."""
        self.unsupported(found)
        sys.stderr.write(f"brimful: torch is a build without CUDA, and this is {found}\n")
        sys.stderr.flush()
        os._exit(97)

    def refuse_process_groups(self):
        distributed = getattr(self.torch, "distributed", None)
        if distributed and distributed.is_available():
            distributed.init_process_group = lambda *_, **__: self.refuse_several()

    def run_uncompiled(self):
        """The compiler has no CUDA to compile for: what it would have compiled runs as it is."""
        torch = self.torch

        def uncompiled(model=None, **named):
            self.caveat("uncompiled", "torch.compile")
            return model if model is not None else lambda function: function

        torch.compile = uncompiled
        torch.nn.Module.compile = lambda module, *_, **__: self.caveat("uncompiled", "Module.compile")

    # --- what PyTorch's allocator would tell ---

    @guarded
    def start_recording(self):
        if not self.recording:
            self.recording = True
            self.devices = [0]
            tell(event="cuda", device=0)

    def counts(self):
        return (self.ledger.count(),)

    def count(self, device):
        return self.ledger.count()

    def reserved(self):
        return None

    def allocated(self):
        return self.ledger.allocated

    def set_phase(self, phase):
        if self.stand_in is not None:
            self.stand_in.in_backward = phase == "backward"
        super().set_phase(phase)

    def address_of(self, storage):
        return self.ledger.address(storage)

    def current_device(self):
        return 0

    def snapshot(self):
        settings = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        return pickle.dumps(self.ledger.snapshot(settings), protocol=4)

    def facts(self, reason):
        return {**super().facts(reason), "fake_tensors": True, "convolutions": self.stand_in.convolutions}

    def figures(self, device):
        return {"peak_allocated_bytes": self.ledger.peak, "peak_reserved_bytes": 0, "retries": 0, "ooms": 0}

    def phantom_report(self):
        return None
