"""What a GPU without contents cannot know, and what is taken in its place."""

import functools
import os
import sys
import time

from brimful_common import guarded, load_part

# NCCL's watchdog looks for finished work ten times a second, and work holds its tensors until then.
WATCHDOG_SECONDS = 0.25


class Substitutes:
    """A part of the rehearsal."""

    @guarded
    def choose_convolutions(self):
        self.autotune = load_part("brimful_autotune").Autotune()
        self.autotune.install()

    def assume_losses_are_finite(self):
        """What is read from the phantom is zero, so `isfinite` would say no and end a careful script.

        A single value's answer is given on the processor, where "yes" can be said; PyTorch lets such a value
        meet tensors on any device. So is that of `isfinite(values).all()`.
        """
        torch = self.torch

        def wrap(function):
            @functools.wraps(function)
            def isfinite(tensor):
                answer = function(tensor)
                plain = type(answer) in self.plain_types and answer.is_cuda
                if not plain or torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing():
                    return answer
                if answer.dim() == 0:
                    return torch.ones((), dtype=torch.bool, device="cpu")
                answer._brimful_finite = True  # for `all`, below
                return answer

            return isfinite

        def wrap_all(function):
            @functools.wraps(function)
            def all_(*arguments, **named):
                answer = function(*arguments, **named)
                if torch.compiler.is_compiling() or named or len(arguments) != 1:
                    return answer
                if not getattr(arguments[0], "_brimful_finite", False):
                    return answer
                return torch.ones((), dtype=torch.bool, device="cpu")

            return all_

        torch.isfinite = wrap(torch.isfinite)
        torch.Tensor.isfinite = wrap(torch.Tensor.isfinite)
        torch.all = wrap_all(torch.all)
        torch.Tensor.all = wrap_all(torch.Tensor.all)
        self.tell_script_compiler(torch.isfinite, "aten::isfinite")
        self.tell_script_compiler(torch.all, "aten::all")

    @guarded
    def tell_script_compiler(self, function, operator):
        """`torch.jit.script` knows operators by the identity of their functions."""
        self.torch.jit._builtins._register_builtin(function, operator)

    def mend_collectives(self):
        """Collectives move no values here: checks of values are skipped, objects go through the store."""
        torch = self.torch
        if not getattr(torch, "distributed", None) or not torch.distributed.is_available():
            return
        import torch.nn.parallel.distributed as ddp

        for name in ("_verify_param_shape_across_processes", "_verify_params_across_processes"):
            if hasattr(ddp, name):
                setattr(ddp, name, lambda *_, **__: True)
        load_part("brimful_objects").install(torch)
        self.separate_ports()

    def separate_ports(self):
        """A script that starts its own ranks does so once for each card at a time: each needs a port."""
        # The package has a function of the same name, which hides the module.
        rendezvous = sys.modules.get("torch.distributed.rendezvous")
        create = getattr(rendezvous, "_create_c10d_store", None)
        if create is None or not self.variant:
            return
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            return  # torchrun's agent has opened the store, and its ranks must join that one

        @functools.wraps(create)
        def elsewhere(hostname, port, *arguments, **named):
            return create(hostname, 1024 + (port + 1009 * self.variant) % 64000, *arguments, **named)

        rendezvous._create_c10d_store = elsewhere

    def world(self):
        """This process's rank and the number of ranks."""
        distributed = getattr(self.torch, "distributed", None)
        if distributed and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return int(os.environ.get("RANK", "0") or "0"), int(os.environ.get("WORLD_SIZE", "1") or "1")

    def let_collectives_end(self):
        """Wait until NCCL's watchdog has let go of finished work.

        On a card a pass takes long enough for that; here it is over at once, and buffers would seem to live
        longer than they do.
        """
        if self.recording and self.world()[1] > 1:
            time.sleep(WATCHDOG_SECONDS)
