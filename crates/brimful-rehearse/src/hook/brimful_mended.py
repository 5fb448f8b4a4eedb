"""What tensors, modules and optimizers do outside of the dispatcher, for tensors without values."""

import functools

import torch
from brimful_attention import attend
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)


def mend(stand_in):
    """Put everything in place."""
    fake = stand_in.shapes.__torch_dispatch__(aten.empty.memory_format, (), ([1],), {"device": CUDA})
    mend_tensors(stand_in.ledger)
    mend_assignment({"_is_param", *vars(fake)})
    mend_modules()
    mend_attention(stand_in.card)
    mend_loading()
    mend_optimizers()


def mend_tensors(ledger):
    """What is asked of a tensor itself."""

    def written(tensor, form):
        return format(tensor.item(), form) if tensor.dim() == 0 and form else object.__format__(tensor, "")

    def pickled(tensor, protocol):
        return torch.Tensor.__reduce_ex__(tensor.detach().cpu(), protocol)

    FakeTensor.__format__ = written
    FakeTensor.__reduce_ex__ = pickled
    FakeTensor.tolist = lambda tensor: zeros_like(tensor, "cpu").tolist()
    FakeTensor.record_stream = lambda tensor, stream: None
    FakeTensor.data_ptr = lambda tensor: (
        (ledger.address(tensor.untyped_storage()) or 0) + tensor.storage_offset() * tensor.element_size()
    )
    pointer = torch.UntypedStorage.data_ptr
    torch.UntypedStorage.data_ptr = lambda storage: ledger.address(storage) or pointer(storage)
    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor


def zeros_like(tensor, device, dtype=None, layout=None):
    """What a GPU without contents gives back."""
    if tensor.is_contiguous() or layout is not None:
        return torch.zeros(tensor.shape, dtype=dtype or tensor.dtype, device=device)
    # Without values of its own a tensor tells its strides only through `meta`.
    meta = torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype, device="meta")
    return torch.zeros_like(meta, device=device)


def differ(tensor, other):
    """Whether one of them has values and the other has not."""
    return isinstance(tensor, FakeTensor) != isinstance(other, FakeTensor)


def mend_assignment(of_fakes):
    """A tensor that moves to `cuda` or back stays the same object: optimizers and tied weights hold it."""
    data = torch._C.TensorBase.data

    def become(tensor, other):
        if not differ(tensor, other):
            data.__set__(tensor, other)
            return
        requires_grad = tensor.requires_grad
        own = {name: value for name, value in vars(tensor).items() if name not in of_fakes}
        if isinstance(tensor, torch.nn.Parameter):
            other = torch.nn.Parameter(other.detach(), requires_grad)
        else:
            other = other.detach().requires_grad_(requires_grad)
        tensor.__class__ = type(other)
        tensor.__dict__ = {**vars(other), **own}
        torch._C._swap_tensor_impl(tensor, other)

    torch.Tensor.data = property(data.__get__, become)


def mend_modules():
    """`Module._apply` would make new parameters of tensors without values."""

    def moved(parameter, function):
        gradient = parameter.grad
        with torch.no_grad():
            applied = function(parameter)
            gradient = None if gradient is None else function(gradient)
        if differ(parameter, applied) or torch._has_compatible_shallow_copy_type(parameter, applied):
            parameter.grad = None
            parameter.data = applied
        else:  # a kind of tensor of its own
            parameter = torch.nn.Parameter(applied, parameter.requires_grad)
        parameter.grad = gradient
        return parameter

    def apply(module, function, recurse=True):
        for child in module.children() if recurse else ():
            child._apply(function)
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = moved(parameter, function)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = function(buffer)
        return module

    torch.nn.Module._apply = functools.wraps(torch.nn.Module._apply)(apply)


def mend_attention(card):
    """The kernel is chosen as on the card."""
    plain = torch.nn.functional.scaled_dot_product_attention

    def attending(query, *arguments, **named):
        if not isinstance(query, FakeTensor):
            return plain(query, *arguments, **named)
        return attend(card, query, *arguments, **named)

    torch.nn.functional.scaled_dot_product_attention = attending
    torch._C._nn.scaled_dot_product_attention = attending


def mend_loading():
    """`torch.load` onto the card goes by the processor."""
    load = torch.load

    @functools.wraps(load)
    def loading(file, map_location=None, **named):
        if isinstance(map_location, int):
            map_location = torch.device("cuda", map_location)
        if not isinstance(map_location, (str, torch.device)) or torch.device(map_location).type != "cuda":
            return load(file, map_location, **named)
        found = load(file, "cpu", **named)
        return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(CUDA), found)

    torch.load = loading


def mend_optimizers():
    """Several tensors at once, as PyTorch does it on cuda for its own kinds of tensors."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    optimizer._foreach_supported_types.append(FakeTensor)
    if hasattr(_foreach_utils, "_foreach_supported_types"):
        _foreach_utils._foreach_supported_types.append(FakeTensor)
