"""What PyTorch's C++ asks of a device, answered for a `cuda` that is not there.

Autograd and copies ask two objects, which a build of torch without CUDA lacks or has only in name:

- The device guard, for the current device and stream. PyTorch has one that does nothing
  (`NoOpDeviceGuardImpl`) for tensors without values, and puts it in place only where a build with CUDA finds
  no device. Without CUDA there is none ("PyTorch is not linked with support for cuda devices"), so for the
  length of one call it is shown a guard that counts no devices.
- The hooks, for whether CUDA is built in and a device in use. Without CUDA they say no, and autograd ends
  with "Cannot access accelerator device when none is available"; so those two answers are made yes.

Both are the same in PyTorch 2.10 to 2.14, and what is found is checked before anything is changed; where it
is not as expected there is no rehearsal. Nothing in here calls CUDA.
"""

import atexit
import ctypes

import torch

# `c10::DeviceType::CUDA`, and the array of guards by type of device.
CUDA = 1
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
# `at::detail::getCUDAHooks()`.
HOOKS = "_ZN2at6detail12getCUDAHooksEv"
# Virtual functions of `AcceleratorHooksInterface`, after the two of its destructor.
IS_BUILT, IS_AVAILABLE, HAS_PRIMARY_CONTEXT = 2, 3, 4
# More virtual functions than a guard or the hooks have.
MAX_FUNCTIONS = 96
# Before the first function: the offset of the object and the type.
BEFORE = 2

POINTER = ctypes.c_void_p
POINTERS = ctypes.POINTER(POINTER)
ANSWER = ctypes.CFUNCTYPE(ctypes.c_bool, POINTER)
ANSWER_FOR_DEVICE = ctypes.CFUNCTYPE(ctypes.c_bool, POINTER, ctypes.c_int8)
KEPT = []  # what C++ points to for the rest of the process


def place_guard():
    """Let C++ believe in a `cuda` of which nothing is asked."""
    guards = (POINTER * (CUDA + 1)).in_dll(loaded("libc10"), GUARDS)
    if not guards[CUDA]:
        show_empty_guard(guards)
    torch._C._ensureCUDADeviceGuardSet()
    answer_for_hooks(loaded("libtorch_cpu"))
    accelerator = torch._C._accelerator_getAccelerator()
    if accelerator.type != "cuda":
        raise RuntimeError(f"PyTorch takes {accelerator} for its accelerator")


def show_empty_guard(guards):
    nothing = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
    functions = (POINTER * MAX_FUNCTIONS)(*[address(nothing)] * MAX_FUNCTIONS)
    guard = POINTER(ctypes.addressof(functions))
    guards[CUDA] = ctypes.addressof(guard)
    torch._C._ensureCUDADeviceGuardSet()
    if guards[CUDA] == ctypes.addressof(guard):
        guards[CUDA] = None
        raise RuntimeError("PyTorch does not put its guard in place")


def answer_for_hooks(library):
    get = getattr(library, HOOKS)
    get.restype = POINTER
    hooks = get()
    place = ctypes.cast(hooks, POINTERS)
    functions = ctypes.cast(place[0], POINTERS)
    if ANSWER(functions[IS_AVAILABLE])(hooks):
        raise RuntimeError("PyTorch finds a CUDA device")
    own = (POINTER * (BEFORE + MAX_FUNCTIONS))(
        *[functions[at] for at in range(-BEFORE, MAX_FUNCTIONS)],
    )
    is_built = ANSWER(lambda hooks: True)
    has_context = ANSWER_FOR_DEVICE(lambda hooks, device: True)
    own[BEFORE + IS_BUILT] = address(is_built)
    own[BEFORE + HAS_PRIMARY_CONTEXT] = address(has_context)
    KEPT.extend([own, is_built, has_context])
    before = place[0]
    place[0] = ctypes.addressof(own) + BEFORE * ctypes.sizeof(POINTER)
    # C++ asks the hooks once more while the process ends, when Python has freed these functions.
    atexit.register(place.__setitem__, 0, before)


def address(function):
    return ctypes.cast(function, POINTER).value


def loaded(name):
    """The library that this process has loaded already."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if f"/{name}." in line}
    if not paths:
        raise RuntimeError(f"{name} is not loaded")
    return ctypes.CDLL(min(paths))
