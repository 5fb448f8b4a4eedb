"""Tensors on `cuda` where torch has no CUDA: shapes without values, on top of PyTorch's FakeTensor.

Only what is made on `cuda` or moved there has no values; tensors on the processor stay what they are, so that
datasets, tokenizers and loaders work as ever. What comes back from `cuda` is zero.
"""

import threading

import torch
from brimful_attention import IN_ATTENTION, backward_scratch
from brimful_guard import place_guard
from brimful_mended import mend, zeros_like
from brimful_reduce import REDUCTIONS, scratch_of
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
# They run in cuBLAS, which takes a workspace for each thread at its first call and keeps it.
IN_CUBLAS = {
    aten.mm.default,
    aten.addmm.default,
    aten.bmm.default,
    aten.baddbmm.default,
    aten.addmv.default,
    aten.mv.default,
    aten.dot.default,
}
IN_CUDNN = {aten.convolution.default, aten.convolution_backward.default}


class UnsupportedError(RuntimeError):
    """The stand-in cannot go on."""


class Shapes(FakeTensorMode):
    """A FakeTensorMode that believes in no device, whatever `torch.cuda` answers."""

    avoid_device_init = property(lambda self: True, lambda self, value: None)


class StandIn(TorchDispatchMode):
    """Runs what concerns `cuda` on shapes, and records what it allocates."""

    def __init__(self, ledger, card, on_caveat, on_unsupported):
        super().__init__()
        self.ledger = ledger
        self.card = card
        self.on_caveat = on_caveat
        self.on_unsupported = on_unsupported
        self.in_backward = False
        self.convolutions = 0
        self.with_workspace = set()  # threads
        self.shapes = Shapes(allow_non_fake_inputs=True)
        self.instead = {
            aten._to_copy.default: self.to_copy,
            aten.copy_.default: self.copy_,
            aten._local_scalar_dense.default: self.item,
            aten.equal.default: lambda *_: False,
            aten.nonzero.default: self.nonzero,
            aten.masked_select.default: self.masked_select,
            aten.index.Tensor: self.index,
            aten._unsafe_index.Tensor: self.index,
            aten.index_put.default: self.index_put,
            aten.index_put_.default: self.index_put_,
            aten._index_put_impl_.default: self.index_put_,
            aten._unique2.default: self.unique,
            aten.bincount.default: self.bincount,
            aten.repeat_interleave.Tensor: self.repeat_interleave,
            aten._amp_foreach_non_finite_check_and_unscale_.default: lambda *_: None,
            aten._amp_update_scale_.default: lambda scale, *_: scale,
            aten.record_stream.default: lambda *_: None,
        }

    def install(self):
        """From here on, in this thread and in those it starts."""
        place_guard()
        # `torch.tensor(…, device="cuda")` is made on the processor and moved, where we see it.
        torch._C._set_only_lift_cpu_tensors(True)  # noqa: FBT003
        fake_tensor.init_gpu_context = lambda device: None
        mend(self)
        self.__enter__()
        run = threading.Thread.run
        stand_in = self

        def run_with_mode(thread):
            # The stack of modes belongs to a thread.
            with stand_in:
                run(thread)

        threading.Thread.run = run_with_mode

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not concerns_cuda(args, kwargs):
            if kwargs.get("pin_memory"):
                kwargs = {**kwargs, "pin_memory": False}
            return func(*args, **kwargs)
        instead = self.instead.get(func)
        if instead is not None:
            return instead(*args, **kwargs)
        return self.run(func, args, kwargs)

    def run(self, func, args, kwargs):
        """By shape, as FakeTensor does it."""
        try:
            made = self.shapes.__torch_dispatch__(func, (), args, kwargs)
        except fake_tensor.DynamicOutputShapeException as error:
            self.refuse(func, "the shape of its result depends on values", error)
        except fake_tensor.DataDependentOutputException as error:
            self.refuse(func, "its result depends on values", error)
        except (fake_tensor.UnsupportedOperatorException, NotImplementedError) as error:
            self.refuse(func, "PyTorch does not tell its shape", error)
        over = None
        if self.in_backward and func is aten.add.Tensor and isinstance(args[1], FakeTensor):
            # Autograd adds gradients in place, but not those of subclasses of tensors such as these.
            over = args[0].untyped_storage()._cdata if isinstance(args[0], FakeTensor) else None
        made = self.seen(made, over)
        if func in IN_CUBLAS and threading.get_ident() not in self.with_workspace:
            self.with_workspace.add(threading.get_ident())
            self.ledger.keep(self.card.cublas_workspace())
        elif func in IN_CUDNN:
            self.convolutions += 1
        elif func in REDUCTIONS and isinstance(args[0], FakeTensor):
            self.ledger.use(scratch_of(self.card, func, args))
        elif func in IN_ATTENTION:
            self.ledger.use(backward_scratch(func, args[1]))
        return made

    def refuse(self, func, why, error):
        self.on_unsupported(f"{func}: {why}")
        raise UnsupportedError(f"{func} cannot be run on tensors without values: {why}") from error

    def seen(self, made, over=None):
        if isinstance(made, FakeTensor):
            if made.fake_device.type == "cuda":
                self.ledger.see(made, over)
                return made
            return zeros_like(made, "cpu") if made.fake_device.type == "cpu" else made
        if isinstance(made, tuple):  # also a named one
            return tuple([self.seen(part) for part in made])
        return [self.seen(part) for part in made] if type(made) is list else made

    def fresh(self, shape, dtype, stride=None):
        named = {"dtype": dtype, "device": CUDA}
        if stride is None:
            return self.run(aten.empty.memory_format, (list(shape),), named)
        return self.run(aten.empty_strided.default, (list(shape), list(stride)), named)

    # --- to and from the processor ---

    def to_copy(self, source, **named):
        device = named.get("device") or source.device
        dtype = named.get("dtype") or source.dtype
        if isinstance(source, FakeTensor) and device.type == "cuda":
            named.pop("non_blocking", None)
            return self.run(aten._to_copy.default, (source,), named)
        layout = named.get("memory_format")
        if device.type != "cuda":
            return zeros_like(source, device, dtype, layout)
        options = {} if layout is None else {"memory_format": layout}
        shape = torch.empty_like(source, dtype=dtype, device="meta", **options)
        return self.fresh(shape.shape, dtype, shape.stride())

    def copy_(self, target, source, non_blocking=False):
        if not isinstance(target, FakeTensor):
            target.zero_()
        return target

    def item(self, tensor):
        dtype = tensor.dtype
        if dtype is torch.bool:
            return False
        if dtype.is_complex:
            return 0j
        return 0.0 if dtype.is_floating_point else 0

    # --- where a shape depends on values: everything is selected ---

    def select_everything(self, what):
        self.on_caveat("value-dependent-shape", what)

    def nonzero(self, tensor):
        self.select_everything("nonzero, or a boolean mask as an index")
        return self.fresh((tensor.numel(), tensor.dim()), torch.int64)

    def masked_select(self, tensor, mask):
        shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        places = self.fresh((shape.numel(), len(shape)), torch.int64)
        self.select_everything("masked_select")
        chosen = self.fresh((shape.numel(),), tensor.dtype)
        del places
        return chosen

    def places(self, indices):
        """Masks as lists of places, as PyTorch turns them into."""
        found = []
        for index in indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                each = self.nonzero(index)
                found.extend(self.run(aten.unbind.int, (each, 1), {}))
            else:
                found.append(index)
        return found

    def index(self, tensor, indices):
        return self.run(aten.index.Tensor, (tensor, self.places(indices)), {})

    def index_put(self, tensor, indices, values, accumulate=False):
        return self.index_put_(self.run(aten.clone.default, (tensor,), {}), indices, values, accumulate)

    def index_put_(self, tensor, indices, values, accumulate=False, unsafe=False):
        if values.numel() != 1 or accumulate:  # a single value is filled in by the mask itself
            self.places(indices)
        if not isinstance(tensor, FakeTensor):
            raise UnsupportedError("a tensor on the processor is indexed with one on cuda")
        return tensor

    def unique(self, tensor, sorted=True, return_inverse=False, return_counts=False):  # noqa: A002
        self.select_everything("unique")
        count = tensor.numel()
        return (
            self.fresh((count,), tensor.dtype),
            self.fresh(tensor.shape if return_inverse else (0,), torch.int64),
            self.fresh((count if return_counts else 0,), torch.int64),
        )

    def bincount(self, tensor, weights=None, minlength=0):
        self.select_everything("bincount")
        return self.fresh((max(minlength, 1),), torch.int64 if weights is None else torch.float64)

    def repeat_interleave(self, repeats, output_size=None):
        if output_size is None:
            self.select_everything("repeat_interleave")
        return self.fresh((repeats.numel() if output_size is None else output_size,), repeats.dtype)


def concerns_cuda(args, kwargs):
    """Whether an operator works on `cuda`."""
    for value in args:
        if isinstance(value, FakeTensor):
            return True
        if isinstance(value, (list, tuple)) and any(isinstance(part, FakeTensor) for part in value):
            return True
    for value in kwargs.values():
        if isinstance(value, FakeTensor) or (isinstance(value, torch.device) and value.type == "cuda"):
            return True
    return False
