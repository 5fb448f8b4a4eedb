"""Operators on values that only the model could compute: what is assumed of their results.

Each rule gives a result plausible values (`brimful_plausible`), so that checks pass and loops end.
"""

import math
import operator

import brimful_plausible as plausible
import torch
from brimful_shadows import CPU, MAX_ELEMENTS, is_on_cuda, is_small
from torch.multiprocessing.reductions import StorageWeakRef

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
# Results of `softmax` that are remembered as such.
MAX_PROBABILITIES = 1024


class Assumptions:
    """A part of the operators."""

    # --- operators that have run: (result, arguments) ---

    def randperm(self, result, n, *, generator=None, out):
        if is_on_cuda(out):
            self.shadows.forget(out)
            if is_small(out):
                self.shadows.set(out, torch.arange(n, dtype=out.dtype, device=CPU), is_true=False)

    def random(self, result, tensor, *bounds, generator=None):
        """Whole numbers, evenly spread over their range."""
        if not is_on_cuda(tensor):
            return
        self.shadows.forget(tensor)
        low, high = bounds if len(bounds) == 2 else (0, bounds[0] if bounds else None)
        if high is not None and is_small(tensor) and not tensor.is_floating_point():
            choices = plausible.balanced_choices(tuple(tensor.shape), min(high - low, tensor.numel()))
            self.shadows.set(tensor, choices + low, is_true=False)

    def multinomial(self, result, tensor, *args, **kwargs):
        if is_on_cuda(result) and is_small(result):
            choices = plausible.balanced_choices(tuple(result.shape), tensor.shape[-1])
            self.shadows.set(result, choices, is_true=False)

    def softmax(self, result, *args, **kwargs):
        """Rows that sum to one, should the script read them."""
        if is_on_cuda(result) and result.numel() <= MAX_ELEMENTS:
            self.note_probabilities(result)

    def note_probabilities(self, tensor):
        if len(self.probabilities) >= MAX_PROBABILITIES:
            self.probabilities.clear()
        storage = tensor.untyped_storage()
        self.probabilities[storage._cdata] = StorageWeakRef(storage)

    # --- rules for operators that could not be computed ---

    def assume_false(self, op, made, args, kwargs):
        self.shadows.set_all(made[0], value=False, is_true=False)

    def assume_true(self, op, made, args, kwargs):
        self.shadows.set_all(made[0], value=True, is_true=False)

    def assume_balanced(self, op, made, args, kwargs):
        """Which class or expert: the indices that `argmax`, `max` and `topk` give."""
        indices = made[-1]
        gives_indices = len(made) == 2 or op._schema.name.startswith("aten::arg")
        if not gives_indices:
            self.assume_extreme(op, made, args, kwargs)
        if not gives_indices or not is_small(indices):
            return
        named = bound_arguments(op, args, kwargs)
        dim, source = named.get("dim"), named["self"]
        if dim is None or source.dim() == 0:
            self.shadows.set_all(indices, 0, is_true=False)
            return
        # Along the dimension there are several indices only where it was kept.
        along = dim if indices.dim() == source.dim() else None
        choices = plausible.balanced_choices(tuple(indices.shape), source.shape[dim], along)
        self.shadows.set(indices, choices, is_true=False)

    def assume_extreme(self, op, made, args, kwargs):
        """The least and the largest of many values: there is room between them."""
        if made[0].numel() == 1 and made[0].is_floating_point() and len(args) == 1:
            values = {"min": [0.1], "amin": [0.1], "max": [0.9], "amax": [0.9]}
            name = op._schema.name.removeprefix("aten::").lstrip("_")
            for tensor, value in zip(made, values.get(name, [0.1, 0.9]), strict=False):
                self.shadows.set_all(tensor, value, is_true=False)

    def assume_order(self, op, made, args, kwargs):
        """Sorted already."""
        indices = made[-1]
        if is_small(indices):
            dim = bound_arguments(op, args, kwargs).get("dim", -1)
            self.shadows.set(indices, plausible.positions(tuple(indices.shape), dim), is_true=False)

    def assume_count(self, op, made, args, kwargs):
        """How many elements fulfil a condition."""
        source, result = args[0], made[0]
        if not source.is_floating_point() and not source.is_complex() and result.numel():
            count = plausible.count_of(source.numel() // result.numel())
            self.shadows.set_all(result, count, is_true=False)

    def assume_finite(self, op, made, args, kwargs):
        """Comparisons of losses with limits, and those by which `isnan` and `isinf` are made."""
        source, other = args[0], args[1]
        if not source.is_floating_point():
            return
        if is_same(source, other):
            value, other = 0.5, 0.5
        elif made[0].numel() == 1:
            value, other = self.single(source), self.single(other)
        elif isinstance(other, float) and not math.isfinite(other):
            value = 0.5
        else:
            return
        answer = COMPARISONS[op._schema.name.removeprefix("aten::")](value, other)
        self.shadows.set_all(made[0], answer, is_true=False)

    def single(self, value):
        """A number, as far as it is known."""
        if not isinstance(value, torch.Tensor):
            return value
        if not is_on_cuda(value):
            return value.item()
        shadow = self.shadows.find(value)
        known = shadow.view(value) if shadow is not None else None
        return known.item() if known is not None else plausible.loss(self.reads)

    rules = {  # noqa: RUF012
        "all": assume_true,
        "any": assume_false,
        "_aminmax": assume_extreme,
        "aminmax": assume_extreme,
        "amax": assume_extreme,
        "amin": assume_extreme,
        "argmax": assume_balanced,
        "argmin": assume_balanced,
        "max": assume_balanced,
        "min": assume_balanced,
        "topk": assume_balanced,
        "sort": assume_order,
        "sum": assume_count,
        "count_nonzero": assume_count,
        **dict.fromkeys(COMPARISONS, assume_finite),
    }


def is_same(one, other):
    """Whether two tensors are the same elements."""
    return (
        isinstance(other, torch.Tensor)
        and one.untyped_storage()._cdata == other.untyped_storage()._cdata
        and one.storage_offset() == other.storage_offset()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
    )


def bound_arguments(op, args, kwargs):
    """Arguments by name, with the defaults of the operator."""
    bound = {}
    for at, argument in enumerate(op._schema.arguments):
        if at < len(args):
            bound[argument.name] = args[at]
        else:
            bound[argument.name] = kwargs.get(argument.name, argument.default_value)
    return bound
