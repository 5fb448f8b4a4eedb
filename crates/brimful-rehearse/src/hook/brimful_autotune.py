"""What `torch.backends.cudnn.benchmark` is likely to choose, where nothing can be timed.

On a card it times every convolution plan and keeps the fastest. On the phantom all are equally fast, so the
choice would be arbitrary, and trying them takes minutes. Instead the setting is noted and kept from PyTorch,
and convolutions are planned by cuDNN's heuristics, except 1x1 convolutions in single precision, which get a
plan without scratch memory: measured on an A100 (docs/accuracy.md), this comes closest to what was chosen
there.
"""

import torch
from torch import nn

PLAIN = nn.functional.conv2d


class Pointwise(torch.autograd.Function):
    """A 1x1 convolution without TF32: cuDNN's heuristics name plans without a workspace for it."""

    @staticmethod
    def forward(ctx, inputs, weight, bias, stride, padding, dilation, groups):
        ctx.save_for_backward(inputs, weight)
        biases = None if bias is None else [weight.shape[0]]
        ctx.geometry = (biases, stride, padding, dilation, False, [0, 0], groups)
        with without_tf32():
            return PLAIN(inputs, weight, bias, stride, padding, dilation, groups)

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        bias_sizes, *geometry = ctx.geometry
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[1], bias_sizes is not None]
        with without_tf32():
            backward = torch.ops.aten.convolution_backward
            found = backward(gradient, inputs, weight, bias_sizes, *geometry, wanted)
        return (*found, None, None, None, None)


class without_tf32:  # noqa: N801
    """For the length of a call."""

    def __enter__(self):
        self.before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False

    def __exit__(self, *_):
        torch.backends.cudnn.allow_tf32 = self.before


def convolution(inputs, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """`torch.nn.functional.conv2d` as an autotuner would run it."""

    def pair(value):
        return list(value) if isinstance(value, (tuple, list)) else [value, value]

    plain = (
        isinstance(padding, str)
        or weight.shape[2:].numel() != 1
        or inputs.dtype != torch.float32
        or type(inputs) is not torch.Tensor
        or inputs.dim() != 4
        or torch.is_autocast_enabled()
        or torch.compiler.is_compiling()
    )
    if plain:
        return PLAIN(inputs, weight, bias, stride, padding, dilation, groups)
    return Pointwise.apply(inputs, weight, bias, pair(stride), pair(padding), pair(dilation), groups)


class Autotune:
    """Stands between the script and the setting."""

    def __init__(self):
        self.wanted = False
        self.ever_wanted = False
        self.set_real = torch._C._set_cudnn_benchmark

    def install(self):
        flag = vars(type(torch.backends.cudnn)).get("benchmark")
        if flag is not None:
            flag.setter = self.set
            flag.getter = self.get
        torch._C._set_cudnn_benchmark = self.set
        torch._C._get_cudnn_benchmark = self.get
        # `torch.jit.script` knows operators by the identity of their functions.
        torch.jit._builtins._register_builtin(convolution, "aten::conv2d")

    def set(self, wanted):
        self.wanted = bool(wanted)
        self.ever_wanted = self.ever_wanted or self.wanted
        nn.functional.conv2d = convolution if self.wanted else PLAIN

    def get(self):
        return self.wanted
