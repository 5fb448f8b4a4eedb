"""What one step computes: each operator with its shapes, for a prediction of its time.

A dispatch mode sees every operator that PyTorch runs, also those of the backward pass, of custom autograd
functions and of activations that are computed again. Equal calls are counted, not repeated. Nothing is
changed: the operator runs as it would, and the mode looks at what it was given and what it made.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Different calls that are kept. The largest step seen so far has 2,400.
MAX_CALLS = 20_000
# Shapes of tensors that are kept of a call; of lists of tensors only the sums are.
MAX_SHAPES = 4
# They allocate and launch nothing.
WITHOUT_KERNEL = frozenset(
    "aten::" + name
    for name in (
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "_unsafe_view",
        "_reshape_alias",
        "lift_fresh",
        "detach",
        "is_same_size",
        "record_stream",
        "set_",
        "resize_",
    )
)


class Capture(TorchDispatchMode):
    """Counts the operators of a step. `phase` gives the part of the step that is at work."""

    supports_higher_order_operators = True

    def __init__(self, phase, launches=None, notes_names=None):
        super().__init__()
        self.phase = phase
        self.launches = launches or (lambda: 0)
        self.notes_names = notes_names or Switch()
        self.notes_names.value = 1
        self.calls = {}  # key -> [the call, how often, kernels launched]
        self.kinds = {}  # operator -> Kind
        self.left_out = 0
        self.first_launch = self.launches()
        self.explained = 0

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        if any(map(is_wrapper, types)):
            return NotImplemented  # what it wraps, such as the part of this rank, comes by here next
        self.notes_names.value = 0
        before = self.launches()
        output = function(*arguments, **(named or {}))
        launched = self.launches() - before
        self.notes_names.value = 1
        self.explained += launched
        try:
            self.note(function, arguments, named or {}, output, launched)
        except Exception:  # a kind of tensor without sizes or strides, or an operator without a schema
            self.left_out += 1
        return output

    def note(self, function, arguments, named, output, launched):
        kind = self.kinds.get(function)
        if kind is None:
            kind = self.kinds[function] = Kind(function)
        if not kind.has_kernel:
            return
        inputs, n_lists = tensors_in(arguments)
        if named:
            more, n_more = tensors_in(named.values())
            inputs, n_lists = inputs + more, n_lists + n_more
        if n_lists:
            key = (function, self.phase(), len(inputs), sum(map(torch.Tensor.numel, inputs)))
        else:
            described = tuple([(t.dtype, t.shape, t.stride()) for t in inputs])
            key = (function, self.phase(), described, kind.settings(arguments))
        known = self.calls.get(key)
        if known is not None:
            known[1] += 1
            known[2] += launched
            return
        outputs, _ = tensors_in((output,))
        if not any(t.device.type == "cuda" for t in inputs + outputs):
            return
        if len(self.calls) >= MAX_CALLS:
            self.left_out += 1
            return
        call = kind.described(key[1], arguments, named, inputs, outputs, output, n_lists)
        self.calls[key] = [call, 1, launched]

    def facts(self):
        self.notes_names.value = 0
        calls = [{**call, "count": n, "launches": launched} for call, n, launched in self.calls.values()]
        return {
            "ops": calls,
            "left_out": self.left_out,
            "launches": self.launches() - self.first_launch,
            "explained_launches": self.explained,
        }


class Switch:
    """Stands for the phantom's where there is none."""

    value = 0


class Kind:
    """What holds for every call of one operator."""

    def __init__(self, function):
        schema = function._schema
        self.name = schema.name
        packet = function._overloadpacket
        returns_view = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        self.has_kernel = not returns_view and self.name not in WITHOUT_KERNEL
        self.written = [
            (at, argument.name)
            for at, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self.flops_of = flop_formulas().get(packet)
        self.places = {argument.name: at for at, argument in enumerate(schema.arguments)}
        self.is_convolution = "convolution" in self.name
        self.is_backward = self.name.endswith("backward")
        self.is_recurrent = self.name in ("aten::_cudnn_rnn", "aten::_cudnn_rnn_backward")

    def settings(self, arguments):
        """The numbers of a call that decide what it computes."""
        if not self.is_convolution:
            return None
        wanted = ("stride", "groups", "transposed", "output_mask")
        found = [(name, self.argument(arguments, name)) for name in wanted]
        return tuple([(name, as_key(value)) for name, value in found if value is not None])

    def argument(self, arguments, name):
        at = self.places.get(name)
        return arguments[at] if at is not None and at < len(arguments) else None

    def described(self, phase, arguments, named, inputs, outputs, output, n_lists):
        written = list(outputs)
        if not written:
            for at, name in self.written:
                value = arguments[at] if at < len(arguments) else named.get(name)
                written += tensors_in((value,))[0]
        largest = max(inputs + outputs, key=weight, default=None)
        call = {
            "op": self.name,
            "phase": phase,
            "dtype": str(largest.dtype).removeprefix("torch."),
            "read_bytes": sum(map(n_bytes, inputs)),
            "written_bytes": sum(map(n_bytes, written)),
            "flops": self.flops(arguments, named, output, inputs),
            "tensors": len(inputs),
        }
        if not n_lists:
            call["shapes"] = [list(t.shape) for t in inputs[:MAX_SHAPES]]
            call["output"] = list(outputs[0].shape) if outputs else []
            call["channels_last"] = any(is_channels_last(t) for t in inputs[:2])
        if self.is_convolution:
            call.update((name, as_json(value)) for name, value in self.settings(arguments))
        return call

    def flops(self, arguments, named, output, inputs):
        if self.is_recurrent:
            # Each weight is multiplied once for each place of the sequence, and twice more for the gradients.
            weights = sum(tensor.numel() for tensor in arguments[1])
            is_packed = bool(self.argument(arguments, "batch_sizes"))
            places = inputs[0].shape[0] * (1 if is_packed else inputs[0].shape[1])
            return 2 * weights * places * (2 if self.is_backward else 1)
        if self.flops_of is None:
            return 0
        try:
            return int(self.flops_of(*arguments, **named, out_val=output))
        except Exception:  # PyTorch's formulas fail for some shapes
            return 0


def is_wrapper(kind):
    """Whether a class of tensors wraps others, as DTensor does."""
    return hasattr(kind, "__tensor_flatten__")


def flop_formulas():
    try:
        from torch.utils.flop_counter import flop_registry
    except ImportError:  # before 2.1
        return {}
    return flop_registry


def tensors_in(values):
    """Return the tensors, also those of lists, and how many lists there were."""
    found = []
    n_lists = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], (torch.Tensor, type(None))):
            tensors = [item for item in value if isinstance(item, torch.Tensor)]
            n_lists += bool(tensors)
            found += tensors
    return found, n_lists


def weight(tensor):
    return (tensor.is_floating_point(), tensor.numel())


def n_bytes(tensor):
    """Bytes that a kernel touches: what is repeated by a stride of zero is in memory once."""
    count = tensor.numel()
    if count and 0 in tensor.stride():
        count = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            count *= size if stride else 1
    return count * tensor.element_size()


def is_channels_last(tensor):
    if tensor.dim() not in (4, 5) or tensor.shape[1] == 1:
        return False
    order = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return tensor.is_contiguous(memory_format=order) and not tensor.is_contiguous()


def as_key(value):
    return tuple(value) if isinstance(value, (list, tuple)) else value


def as_json(value):
    return list(value) if isinstance(value, tuple) else value
