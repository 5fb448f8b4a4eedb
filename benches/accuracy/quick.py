"""Models without values: built as a script builds them, but nothing is filled in."""

import contextlib
import importlib

import torch


class Skip(Exception):  # noqa: N818 - it is not an error
    """A row that cannot be rebuilt, with the reason."""


@contextlib.contextmanager
def unfilled():
    """Build modules without drawing random numbers; sizes and the order of allocations stay as they are."""
    names = ("uniform_", "normal_", "erfinv_", "trunc_normal_", "exponential_", "random_", "bernoulli_")
    methods = {name: getattr(torch.Tensor, name) for name in names if hasattr(torch.Tensor, name)}
    functions = {}
    for module_name in ("timm.layers.weight_init", "torch.nn.init"):
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        for name in ("_trunc_normal_", "_no_grad_trunc_normal_", "orthogonal_"):
            if hasattr(module, name):
                functions[module, name] = getattr(module, name)
    try:
        for name in methods:
            setattr(torch.Tensor, name, lambda self, *_, **__: self)
        for module, name in functions:
            setattr(module, name, lambda tensor, *_, **__: tensor)
        yield
    finally:
        for name, method in methods.items():
            setattr(torch.Tensor, name, method)
        for (module, name), function in functions.items():
            setattr(module, name, function)
