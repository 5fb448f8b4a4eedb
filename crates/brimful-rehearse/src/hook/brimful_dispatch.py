"""Kernels in Python between PyTorch's autograd and its CUDA kernels.

PyTorch's dispatcher passes every operator through the key `BackendSelect`, below autograd and above the
kernels of the devices, where most operators have no kernel. A kernel that is registered there can run the
CUDA kernel as usual and look at what it was given and what it made. Other ways are worse: a dispatch mode
switches torch.compile off, and a kernel under the key `CUDA` takes the place of the real one, whose
allocations are what a rehearsal is for.
"""

import functools

import torch

BACKEND_SELECT = torch._C.DispatchKey.BackendSelect
CPU = torch.device("cpu")
# Other operators call these with a number that PyTorch has put on the GPU, as `10000.0 ** x` does. Such a
# number cannot be handed to a kernel in Python.
WITH_NUMBERS_ON_CUDA = (
    "aten::bucketize.Tensor",
    "aten::pow.Tensor_Tensor",
    "aten::searchsorted.Tensor",
)
NUMBERS = (bool, int, float, complex)


class Dispatch:
    """Registers kernels, each with a function that runs the original one."""

    def __init__(self, before_each, problem):
        self.before_each = before_each
        self.problem = problem
        self.libraries = {}
        self.registered = set()

    def register(self, name, make_kernel):
        """`make_kernel` gets the operator when it is first called, and gives `kernel(original, *args)`."""
        self.registered.add(name)
        namespace, _, rest = name.partition("::")
        library = self.libraries.get(namespace)
        if library is None:
            library = self.libraries[namespace] = torch.library.Library(namespace, "IMPL")
        op = kernel = places = None

        def dispatched(keyset, *args, **kwargs):
            nonlocal op, kernel, places
            if op is None:
                op = operator_of(name)
                arguments = enumerate(op._schema.arguments)
                places = [at for at, argument in arguments if "Tensor" in str(argument.type)]
                kernel = self.kernel_or_original(op, make_kernel)
            for at in places:
                if at < len(args) and isinstance(args[at], NUMBERS):
                    args = (*args[:at], as_tensor(args[at], args), *args[at + 1 :])
            self.before_each()

            def original():
                below = keyset.remove(BACKEND_SELECT)
                return op._handle.redispatch_boxed(below, *args, **kwargs)

            return kernel(original, *args, **kwargs)

        # Not `library.impl`, which takes longer: there are more than a thousand.
        with_keyset = True
        library.m.impl(rest, "BackendSelect", dispatched, with_keyset)

    def kernel_or_original(self, op, make_kernel):
        try:
            return make_kernel(op)
        except Exception as error:  # a rehearsal without its values is better than none
            self.problem(f"values of {op}: {error!r}")
            return lambda original, *_, **__: original()

    def uninstall(self):
        for library in self.libraries.values():
            library._destroy()
        self.libraries.clear()


def operator_of(name):
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def has_kernel(name, key):
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def can_register(name):
    """Not where the key is taken, and not for operators that are made of others."""
    if name.removesuffix("_out") in WITH_NUMBERS_ON_CUDA:
        return False
    return not has_kernel(name, "CompositeImplicitAutograd") and not has_kernel(name, "BackendSelect")


def as_tensor(number, args):
    """A number in the place of a tensor, such as the 3 of `x * 3`: it does not decide the type of the result.

    PyTorch marks such tensors, and hands them to kernels in Python as numbers.
    """
    dtypes = [argument.dtype for argument in args if isinstance(argument, torch.Tensor)]
    if dtypes:
        dtype = functools.reduce(torch.promote_types, dtypes)
        is_weaker = dtype.is_complex or (
            not isinstance(number, complex)
            if dtype.is_floating_point
            else isinstance(number, bool) or (isinstance(number, int) and dtype != torch.bool)
        )
        if is_weaker and (dtype.is_floating_point or fits(number, dtype)):
            return torch.tensor(number, dtype=dtype, device=CPU)
    return torch.tensor(number, device=CPU)


def fits(number, dtype):
    return dtype.is_complex or torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max
