"""Computes the values of operators on the CPU where the values of all inputs are known.

The CUDA kernel runs as usual; then its result gets a shadow (`brimful_shadows`). An operator that is not
computed in here and writes into a tensor makes its values unknown.
"""

import contextlib
import functools
import os
import sys
import threading
import time

import brimful_plausible as plausible
import torch
from brimful_assumptions import Assumptions
from brimful_dispatch import Dispatch, can_register, operator_of
from brimful_shadows import CPU, MAX_ELEMENTS, Shadows, covers_storage, is_on_cuda, is_small

# Operators whose results are computed, in all variants that take no `out`.
COMPUTED = frozenset(
    """
    _aminmax abs add all amax amin aminmax any argmax argmin bincount bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor bucketize cat ceil clamp clamp_max clamp_min
    clone constant_pad_nd count_nonzero cummax cummin cumprod cumsum div eq exp fill flip floor
    floor_divide fmod gather ge gt index index_add index_copy index_fill index_put index_select isin
    kthvalue le log logical_and logical_not logical_or logical_xor lt masked_fill masked_scatter
    masked_select max maximum mean min minimum mul ne neg pow prod reciprocal remainder
    repeat_interleave roll round rsub scatter scatter_add scatter_reduce searchsorted sign sort sqrt
    stack sub sum take topk tril triu trunc where
    """.split()  # noqa: SIM905
)
# Others that scripts often call, by which shadows are confirmed (`Shadows.confirm`).
CONFIRMING = frozenset(
    """
    _fused_rms_norm _log_softmax addmm bmm convolution embedding gelu mm native_batch_norm native_dropout
    native_group_norm native_layer_norm relu sigmoid silu tanh
    """.split()  # noqa: SIM905
)
# As if every rank had sent the same.
SAME_ON_ALL_RANKS = ("allreduce_", "allreduce_coalesced_", "broadcast_")
# Names of operators that are not PyTorch's kernels.
OTHER_NAMESPACES = ("prim", "prims", "profiler", "static_runtime", "rngprims", "higher_order")
# Seconds for computing values, after which only small tensors are computed.
MAX_SECONDS = 3.0
MAX_ELEMENTS_LATER = 1 << 12


class Operators(Assumptions):
    """Kernels that keep track of values."""

    def __init__(self, caveat, problem, writes, foreign_launches):
        self.shadows = Shadows(writes, foreign_launches)
        self.dispatch = Dispatch(self.shadows.confirm, problem)
        self.caveat = caveat
        self.problem = problem
        self.modules_seen = 0
        self.local = threading.local()
        self.reads = 0
        self.seconds = 0.0
        self.probabilities = {}
        self.last_read = None  # where the script has last read a value that is not true

    def install(self):
        """Register a kernel for every operator that is computed, reads values or writes."""
        followed = {
            "copy_": self.copy,
            "fill_.Scalar": self.fill,
            "zero_": self.zero,
            "arange.start_out": self.arange,
            "randperm.generator_out": self.randperm,
            "random_": self.random,
            "random_.to": self.random,
            "random_.from": self.random,
            "multinomial": self.multinomial,
            "_softmax": self.softmax,
            "_amp_foreach_non_finite_check_and_unscale_": self.find_no_overflow,
            "_amp_update_scale_": leave,
        }
        for name, then in followed.items():
            self.dispatch.register(f"aten::{name}", self.followed_by(then))
        replaced = {"_local_scalar_dense": self.item, "nonzero": self.nonzero, "_coalesce": self.coalesce}
        for name, kernel in replaced.items():
            self.dispatch.register(f"aten::{name}", lambda op, kernel=kernel: kernel)
        for name in ("searchsorted.Scalar", "bucketize.Scalar", "isin.Scalar_Tensor"):
            self.dispatch.register(f"aten::{name}", self.with_number_as_tensor)
        for name in ("_unique2", "unique_dim", "unique_consecutive"):
            self.dispatch.register(f"aten::{name}", self.unique)
        self.register_all()
        self.watch_lists()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self):
        """DataLoader workers compute on the CPU only, where these kernels cost time."""
        if torch.cuda.is_initialized():
            self.dispatch.uninstall()

    def register_all(self):
        """All operators that are known by now: a library that is loaded later brings its own."""
        self.modules_seen = len(sys.modules)
        for name in torch._C._dispatch_get_all_op_names():
            if name not in self.dispatch.registered:
                self.dispatch.registered.add(name)
                make_kernel = self.kernel_for(name)
                if make_kernel is not None and can_register(name):
                    self.dispatch.register(name, make_kernel)

    def kernel_for(self, name):
        """What makes the kernel of an operator, or None if it needs none."""
        namespace, _, rest = name.partition("::")
        base, _, overload = rest.partition(".")
        if namespace in OTHER_NAMESPACES:
            return None
        if (namespace, base) == ("torchvision", "nms"):
            return self.bounded
        if namespace == "aten" and rest in CONFIRMING:
            return self.followed_by(leave)
        try:
            schema = torch._C._get_schema(f"{namespace}::{base}", overload)
        except RuntimeError:
            return None
        takes_out = schema.is_mutable and any(argument.is_out for argument in schema.arguments)
        if namespace == "aten" and base.removesuffix("_") in COMPUTED and not takes_out:
            return self.in_place if schema.is_mutable else self.computed
        return self.written if schema.is_mutable else None

    def followed_by(self, then):
        """What makes a kernel that runs as usual, with something to note afterwards."""

        def make_kernel(op):
            def kernel(original, *args, **kwargs):
                result = original()
                try:
                    then(result, *args, **kwargs)
                except Exception as error:
                    self.problem(f"values of {op}: {error!r}")
                    for tensor in tensors_of(result):
                        self.shadows.forget(tensor)
                return result

            return kernel

        return make_kernel

    # --- operators that are computed ---

    def computed(self, op):
        """A kernel that computes its result on the CPU too."""
        base = op._schema.name.removeprefix("aten::")
        rule = self.rules.get(base)

        def kernel(original, *args, **kwargs):
            result = original()
            first = args[0] if args else None
            if rule is None and type(first) is torch.Tensor and not is_small(first):
                return result
            try:
                self.note_result(op, rule, result, args, kwargs)
            except Exception as error:
                self.problem(f"values of {op}: {error!r}")
                for made in tensors_of(result):
                    self.shadows.forget(made)
            return result

        return kernel

    def note_result(self, op, rule, result, args, kwargs):
        made = tensors_of(result)
        if not made or not all(is_on_cuda(tensor) for tensor in made):
            return
        known = self.known_inputs(args, kwargs) if all(is_small(tensor) for tensor in made) else None
        values = self.compute(op, *known) if known is not None else None
        if values is not None:
            for tensor, value in zip(made, tensors_of(values), strict=True):
                if tensor.shape == value.shape and tensor.dtype == value.dtype:
                    self.shadows.set(tensor, value, is_true=known[2])
                else:
                    self.shadows.forget(tensor)
            return
        for tensor in made:
            self.shadows.forget(tensor)
        if rule is not None:
            rule(self, op, made, args, kwargs)

    def known_inputs(self, args, kwargs):
        """The arguments with values in place of tensors, and whether all are true; None if one is unknown."""
        inputs = Inputs(self.shadows, MAX_ELEMENTS if self.seconds < MAX_SECONDS else MAX_ELEMENTS_LATER)
        try:
            args = [inputs.replace(argument) for argument in args]
            kwargs = {name: inputs.replace(argument) for name, argument in kwargs.items()}
        except UnknownValueError:
            return None
        return (args, kwargs, inputs.are_true) if inputs.elements is not None else None

    def compute(self, op, args, kwargs, are_true):
        """What the operator gives on the CPU; None where it fails, as an index out of range does."""
        began = time.perf_counter()
        try:
            return op(*args, **kwargs)
        except (RuntimeError, IndexError, NotImplementedError, ZeroDivisionError):
            return None
        finally:
            self.seconds += time.perf_counter() - began

    def in_place(self, op):
        """A kernel that writes into its arguments: so does its twin into their shadows."""
        places = [at for at, argument in enumerate(op._schema.arguments) if writes(argument)]

        def kernel(original, *args, **kwargs):
            targets = [tensor for at in places if at < len(args) for tensor in tensors_of(args[at])]
            if not self.shadows.by_storage or not all(is_on_cuda(target) for target in targets):
                return original()
            keys = {target.untyped_storage()._cdata for target in targets}
            if keys & self.busy():
                return original()  # part of an operator that is being computed
            kept = self.compute_in_place(op, targets, args, kwargs)
            with self.writing(keys):
                try:
                    result = original()
                except BaseException:
                    kept = None
                    raise
                finally:
                    for at, target in enumerate(targets):
                        if kept is None:
                            self.shadows.forget(target)
                        else:
                            self.shadows.put_back(target, kept[at])
            return result

        return kernel

    def busy(self):
        """The storages that an operator of this thread is writing."""
        if not hasattr(self.local, "busy"):
            self.local.busy = set()
        return self.local.busy

    @contextlib.contextmanager
    def writing(self, keys):
        busy = self.busy()
        busy |= keys
        try:
            yield
        finally:
            busy -= keys

    def compute_in_place(self, op, targets, args, kwargs):
        """The shadows of the targets, with the new values; None where they are not known."""
        try:
            kept = [self.shadows.find(target) for target in targets]
            if not all(shadow is not None and self.shadows.make_writable(shadow) for shadow in kept):
                return None
            known = self.known_inputs(args, kwargs)
            if known is None or self.compute(op, *known) is None:
                return None
        except Exception as error:
            self.problem(f"values of {op}: {error!r}")
            return None
        for shadow in kept:
            shadow.is_true = shadow.is_true and known[2]
        return kept

    def written(self, op):
        """A kernel that only forgets the values of what it writes."""
        arguments = [
            (at, argument.name) for at, argument in enumerate(op._schema.arguments) if writes(argument)
        ]
        namespace, _, base = op._schema.name.partition("::")
        shares = namespace == "c10d" and base in SAME_ON_ALL_RANKS

        def kernel(original, *args, **kwargs):
            result = original()
            if not self.shadows.by_storage:
                return result
            for at, name in arguments:
                for tensor in tensors_of(args[at] if at < len(args) else kwargs.get(name)):
                    if shares:
                        self.shadows.doubt(tensor)
                    else:
                        self.shadows.forget(tensor)
            return result

        return kernel

    # --- factories and copies ---

    def fill(self, result, tensor, value):
        self.note_fill(tensor, value)

    def zero(self, result, tensor):
        self.note_fill(tensor, 0)

    def note_fill(self, tensor, value):
        if not is_on_cuda(tensor) or isinstance(value, complex):
            return
        if covers_storage(tensor):
            self.shadows.set_all(tensor, value, is_true=True, from_factory=True)
            return
        shadow = self.shadows.find(tensor)
        if shadow is not None and tensor.numel() <= MAX_ELEMENTS and self.shadows.make_writable(shadow):
            shadow.view(tensor).fill_(value)
        else:
            self.shadows.forget(tensor)

    def arange(self, result, start, end, step=1, *, out):
        if is_on_cuda(out):
            self.shadows.forget(out)
            if is_small(out):
                self.shadows.set(
                    out, torch.arange(start, end, step, dtype=out.dtype, device=CPU), is_true=True
                )

    def copy(self, result, target, source, non_blocking=False):
        from_cuda = is_on_cuda(source)
        if is_on_cuda(target):
            self.note_copy(target, source, from_cuda)
        elif from_cuda and target.device.type == "cpu":
            self.read(target, source)

    def note_copy(self, target, source, from_cuda):
        values, is_true, fill = source, True, None
        if from_cuda:
            shadow = self.shadows.find(source)
            values = shadow.view(source) if shadow is not None else None
            if values is not None:
                is_true, fill = shadow.is_true, shadow.fill
        elif source.device.type != "cpu":
            values = None
        if values is None:
            self.shadows.forget(target)
        elif not covers_storage(target):
            self.note_part(target, values, is_true)
        elif fill is not None and not target.dtype.is_complex:
            self.shadows.set_all(target, fill.to(target.dtype).item(), is_true)
        else:
            self.shadows.set(target, values, is_true, from_host=not from_cuda)
        if from_cuda and source.untyped_storage()._cdata in self.probabilities:
            self.note_probabilities(target)

    def note_part(self, target, values, is_true):
        """Values for a part of a storage, whose other values stay as they are."""
        shadow = self.shadows.find(target)
        if shadow is not None and target.numel() <= MAX_ELEMENTS and self.shadows.make_writable(shadow):
            shadow.view(target).copy_(values)
            shadow.is_true = shadow.is_true and is_true
        else:
            self.shadows.forget(target)

    def find_no_overflow(self, result, tensors, found_inf, inv_scale):
        """`GradScaler` skips the step of an optimizer unless this is zero."""
        if is_on_cuda(found_inf):
            self.shadows.set_all(found_inf, 0.0, is_true=False, is_confirmed=True)

    # --- values that the script reads ---

    def read(self, target, source):
        """Tensors that are copied to the CPU."""
        shadow = self.shadows.find(source)
        values = shadow.view(source) if shadow is not None else None
        if shadow is not None and not shadow.is_true:
            self.last_read = place()
        if values is not None:
            target.copy_(values)
            return
        self.last_read = place()
        if not source.is_floating_point() or not 0 < source.numel() <= MAX_ELEMENTS or target.any():
            return
        if source.numel() == 1:
            target.fill_(self.next_loss())
        elif source.untyped_storage()._cdata in self.probabilities:
            target.copy_(plausible.probabilities(source.shape, torch.float32))
        else:
            target.copy_(plausible.spread(source.shape, torch.float32))

    def item(self, original, tensor):
        value = original()
        if not is_on_cuda(tensor):
            return value
        shadow = self.shadows.find(tensor)
        values = shadow.view(tensor) if shadow is not None else None
        if shadow is None or not shadow.is_true:
            self.last_read = place()
        if values is not None:
            # One of several numbers is more often a size than a count of correct answers is.
            if not shadow.is_true and shadow.fill is None and is_whole(tensor):
                self.caveat("value_read", place())
            return values.item()
        if value != 0 or isinstance(value, complex):
            return value
        if tensor.is_floating_point():
            return self.next_loss()
        if is_whole(tensor):
            self.caveat("value_read", place())
            return 1
        return value

    def watch_lists(self):
        """`tolist()` of whole numbers gives sizes, as of the tokens for each expert."""
        listing = torch.Tensor.tolist

        @functools.wraps(listing)
        def tolist(tensor):
            if is_on_cuda(tensor) and is_whole(tensor) and tensor.numel() > 0:
                shadow = self.shadows.find(tensor)
                if shadow is None or not shadow.is_true:
                    self.caveat("value_read", place())
            return listing(tensor)

        torch.Tensor.tolist = tolist

    def next_loss(self):
        self.reads += 1
        return plausible.loss(self.reads)

    # --- shapes that depend on values ---

    def values_for_shape(self, tensor, what):
        """The values that a shape is made from, and whether they are true; notes those that are not."""
        if self.modules_seen != len(sys.modules):
            self.register_all()
        shadow = self.shadows.find(tensor)
        values = None
        if shadow is not None and tensor.numel() <= MAX_ELEMENTS:
            values = shadow.view(tensor)
        if values is None:
            self.caveat("value-dependent-shape", f"{what}, {place()}")
            return None
        if not shadow.is_true:
            self.caveat("assumed_values", f"{what}, {place()}")
        return values, shadow.is_true

    def nonzero(self, original, tensor):
        """Without values everything is selected, or half of it (`plausible.CASE`)."""
        if not is_on_cuda(tensor):
            return original()
        known = self.values_for_shape(tensor, "a mask or nonzero()")
        if known is None:
            selected = plausible.n_selected(tensor.numel())
            return torch.empty((selected, tensor.dim()), dtype=torch.int64, device=tensor.device)
        selected = known[0].nonzero()
        result = torch.empty(selected.shape, dtype=torch.int64, device=tensor.device)
        self.shadows.set(result, selected, known[1])
        return result

    def unique(self, op):
        """A kernel for the operators that find distinct values; without values all are different."""

        def kernel(original, tensor, *args, **kwargs):
            if not is_on_cuda(tensor):
                return original()
            known = self.values_for_shape(tensor, "unique()")
            if known is None and tensor.numel() > 4 * MAX_ELEMENTS:
                return original()
            if known is not None:
                values = known[0]
            else:
                different = max(plausible.n_selected(tensor.numel()), 1)
                values = torch.arange(tensor.numel(), device=CPU).remainder_(different).view(tensor.shape)
            found = op(values, *args, **kwargs)
            # The kernel sorts a copy.
            scratch = [torch.empty_like(tensor), torch.empty_like(tensor, dtype=torch.int64)]
            dtypes = [tensor.dtype, *(part.dtype for part in found[1:])]
            made = [
                torch.empty(part.shape, dtype=dtype, device=tensor.device)
                for part, dtype in zip(found, dtypes, strict=True)
            ]
            del scratch
            if known is not None:
                for result, part in zip(made, found, strict=True):
                    self.shadows.set(result, part, known[1])
            return tuple(made)

        return kernel

    def with_number_as_tensor(self, op):
        """A kernel for operators whose own kernel would put a number on the GPU (`WITH_NUMBERS_ON_CUDA`)."""
        with_tensor = operator_of(f"{op._schema.name}.{op._overloadname.replace('Scalar', 'Tensor')}")

        def kernel(original, *args, **kwargs):
            tensors = [tensor for tensor in args[:2] if isinstance(tensor, torch.Tensor)]
            if not any(is_on_cuda(tensor) for tensor in tensors):
                return original()
            like = tensors[0]
            args = [
                argument if isinstance(argument, torch.Tensor) else like.new_full((), argument)
                for argument in args[:2]
            ] + list(args[2:])
            return with_tensor(*args, **kwargs)

        return kernel

    def coalesce(self, original, tensor):
        """Sparse tensors: as many elements as there are different indices."""
        if not tensor.is_cuda or type(tensor) is not torch.Tensor or tensor._nnz() < 2:
            return original()
        indices, values = tensor._indices(), tensor._values()
        known = self.values_for_shape(indices, "coalesce()")
        found = torch.unique(known[0], dim=1) if known is not None else None
        count = found.shape[1] if known is not None else plausible.n_selected(indices.shape[1])
        new_indices = torch.empty((indices.shape[0], count), dtype=indices.dtype, device=indices.device)
        new_values = torch.empty((count, *values.shape[1:]), dtype=values.dtype, device=values.device)
        if known is not None:
            self.shadows.set(new_indices, found, known[1])
        return torch.sparse_coo_tensor(
            new_indices, new_values, tensor.shape, is_coalesced=True, check_invariants=False
        )

    def bounded(self, op):
        """A kernel that selects as much as it can, since the phantom's memory reads as zeros."""

        def kernel(original, *args, **kwargs):
            result = original()
            if any(is_on_cuda(tensor) for tensor in tensors_of(args)):
                self.caveat("value-dependent-shape", f"{op._schema.name}(), {place()}")
                selected = plausible.n_selected(result.shape[0])
                if selected < result.shape[0]:
                    return result[:selected].clone()
            return result

        return kernel


class Inputs:
    """Takes values for tensors, as far as they are known."""

    def __init__(self, shadows, max_elements):
        self.shadows = shadows
        self.max_elements = max_elements
        self.elements = None  # of tensors on the phantom
        self.are_true = True

    def replace(self, argument):
        if isinstance(argument, (list, tuple)):
            return [self.replace(part) for part in argument]
        if not isinstance(argument, torch.Tensor) or not argument.is_cuda:
            return argument
        if argument.numel() == 0 and argument.layout is torch.strided:
            return torch.empty(argument.shape, dtype=argument.dtype, device=CPU)  # there is nothing to know
        shadow = self.shadows.find(argument) if is_on_cuda(argument) else None
        values = shadow.view(argument) if shadow is not None else None
        self.elements = (self.elements or 0) + argument.numel()
        if values is None or self.elements > self.max_elements:
            raise UnknownValueError
        self.are_true = self.are_true and shadow.is_true
        return values


class UnknownValueError(Exception):
    """An input has no shadow, or too many elements."""


def is_whole(tensor):
    return tensor.dtype in (torch.int16, torch.int32, torch.int64)


def writes(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def leave(result, *_, **__):
    """For operators after which nothing is to be noted."""


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [part for part in value if isinstance(part, torch.Tensor)]
    return []


HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = os.path.dirname(os.path.abspath(torch.__file__))
PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def place():
    """The line of the script that is at work, and the line of the library that it calls."""
    frame = sys._getframe(1)
    library = None
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((HERE, TORCH, "<")):
            package = next((part for part in PACKAGES if part in path), None)
            if package is None and not path.startswith(sys.base_prefix):
                line = f"{os.path.basename(path)}:{frame.f_lineno}"
                return f"{line} in {library}" if library else line
            if package is not None and library is None:
                library = f"{path.rpartition(package)[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return library or "outside the script"
