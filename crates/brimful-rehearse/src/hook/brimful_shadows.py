"""Shadows: the values of tensors on the phantom, kept on the CPU as far as they are known.

The phantom's memory has no contents. What the script copies to the GPU (labels, lengths, masks, token ids,
boxes), what factories such as `zeros` and `arange` make, and what integer and boolean operators derive from
it has a shadow: a copy of the storage on the CPU. A shadow is true, or it is assumed: plausible values for
something that only the model could compute. What has no shadow is unknown.

A shadow belongs to a storage, its allocation and its size, never to an address: the allocator reuses
addresses. While a shadow exists, a weak reference keeps the storage's identity from being reused too.
"""

import sys

import torch
from torch.multiprocessing.reductions import StorageWeakRef

# Elements of a tensor whose values are kept and computed.
MAX_ELEMENTS = 1 << 20
# Of floating point only small tensors, such as boxes, are of interest: most floats are the model's.
MAX_FLOATS = 1 << 14
# Of all shadows together.
MAX_BYTES = 256 << 20
# Shadows made between two searches for those whose storage is gone.
CLEANING_INTERVAL = 512
# Callers that distinguish two calls of one instruction.
MAX_CALLERS = 5
# Where shadows are, whatever `torch.set_default_device` says.
CPU = torch.device("cpu")
# Subclasses of tensors have a meaning of their own, and those of the compiler have only a shape.
PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def is_on_cuda(tensor):
    return tensor.is_cuda and type(tensor) in PLAIN_TYPES and tensor.layout == torch.strided


def is_small(tensor):
    """Whether the values of such a tensor are kept."""
    limit = MAX_FLOATS if tensor.dtype.is_floating_point else MAX_ELEMENTS
    return tensor.numel() <= limit and not tensor.dtype.is_complex


def covers_storage(tensor):
    """Whether the tensor is all of its storage, so that writing it leaves nothing of before."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


class Shadow:
    """The values of one storage: a storage on the CPU, or one value for all elements."""

    __slots__ = (
        "fill",
        "foreign_launches",
        "instruction",
        "is_true",
        "nbytes",
        "pointer",
        "reference",
        "storage",
        "writes",
    )

    def __init__(self, storage, is_true):
        self.reference = StorageWeakRef(storage)
        self.pointer = storage.data_ptr()
        self.nbytes = storage.nbytes()
        self.is_true = is_true
        self.storage = None
        self.fill = None
        self.foreign_launches = None
        self.writes = None
        self.instruction = None

    def belongs_to(self, storage):
        return self.pointer == storage.data_ptr() and self.nbytes == storage.nbytes()

    def view(self, tensor):
        """The values of a tensor on this storage."""
        if self.fill is not None:
            return self.fill.expand(tensor.shape) if self.fill.dtype == tensor.dtype else None
        values = torch.empty(0, dtype=tensor.dtype, device=CPU)
        return values.set_(self.storage, tensor.storage_offset(), tensor.shape, tensor.stride())


class Shadows:
    """All shadows of this process.

    A new shadow is unconfirmed. It may have been made inside an operator that then writes into the same
    storage with a kernel of its own: many fill their result with zeros first. It counts as long as
    nothing is written on the GPU, and from the next instruction of the script on, if nothing was until then.
    """

    def __init__(self, writes, foreign_launches):
        self.by_storage = {}
        self.unconfirmed = []
        self.count_writes = writes
        self.count_foreign_launches = foreign_launches
        self.bytes = 0
        self.until_cleaning = CLEANING_INTERVAL

    def find(self, tensor):
        """The shadow of a tensor's storage, or None."""
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        shadow = self.by_storage.get(storage._cdata)
        if shadow is None:
            return None
        is_stale = (
            not shadow.belongs_to(storage)
            or (shadow.writes is not None and shadow.writes != self.count_writes())
            or (
                shadow.foreign_launches is not None
                and shadow.foreign_launches != self.count_foreign_launches()
            )
        )
        if is_stale:
            self.forget(tensor)
            return None
        return shadow

    def confirm(self):
        """Called before every operator, and wherever else the script is known to be at work."""
        if not self.unconfirmed:
            return
        writes = self.count_writes()
        instruction = current_instruction()
        waiting = []
        for shadow in self.unconfirmed:
            if shadow.writes == writes:
                if instruction is None or shadow.instruction in (None, instruction):
                    waiting.append(shadow)
                else:
                    shadow.writes = shadow.instruction = None
        self.unconfirmed = waiting

    def forget(self, tensor):
        """Something unknown was written into the tensor."""
        if self.by_storage and tensor.layout is torch.strided:
            shadow = self.by_storage.pop(tensor.untyped_storage()._cdata, None)
            if shadow is not None and shadow.storage is not None:
                self.bytes -= shadow.nbytes

    def doubt(self, tensor):
        """The tensor's values may have changed."""
        shadow = self.find(tensor)
        if shadow is not None:
            shadow.is_true = False

    def put_back(self, tensor, shadow):
        """The shadow holds what an operator wrote, whatever the operators inside it have forgotten."""
        self.forget(tensor)
        self.add(tensor, shadow)

    def set(self, tensor, values, is_true, from_host=False):
        """The tensor, which is all of its storage, has these values."""
        self.forget(tensor)
        if not is_small(tensor) or not covers_storage(tensor) or tensor.numel() == 0:
            return
        nbytes = tensor.untyped_storage().nbytes()
        if self.bytes + nbytes > MAX_BYTES:
            self.clean()
            if self.bytes + nbytes > MAX_BYTES:
                return
        copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=CPU)
        copy.copy_(values)
        shadow = Shadow(tensor.untyped_storage(), is_true)
        shadow.storage = copy.untyped_storage()
        # No operator sends values to the GPU in order to write over them.
        self.add(tensor, shadow, is_confirmed=from_host)

    def set_all(self, tensor, value, is_true, from_factory=False, is_confirmed=False):
        """Every element of the tensor, which is all of its storage, has this value; of any size."""
        self.forget(tensor)
        if not covers_storage(tensor) or tensor.numel() == 0 or tensor.dtype.is_complex:
            return
        shadow = Shadow(tensor.untyped_storage(), is_true)
        shadow.fill = torch.full((), value, dtype=tensor.dtype, device=CPU)
        if from_factory:
            # Kernels of other libraries are given such tensors to write their results into.
            shadow.foreign_launches = self.count_foreign_launches()
        self.add(tensor, shadow, is_confirmed)

    def make_writable(self, shadow):
        """Whether views of the shadow can be written, for operators that work in place."""
        if shadow.fill is None:
            return True
        count = shadow.nbytes // shadow.fill.element_size()
        if count > MAX_ELEMENTS:
            return False
        values = torch.empty(count, dtype=shadow.fill.dtype, device=CPU).copy_(shadow.fill)
        shadow.storage = values.untyped_storage()
        shadow.fill = None
        self.bytes += shadow.nbytes
        return True

    def add(self, tensor, shadow, is_confirmed=False):
        self.until_cleaning -= 1
        if self.until_cleaning <= 0:
            self.clean()
        if torch.cuda.is_current_stream_capturing():
            return  # what a graph writes when it is replayed is not seen
        if not is_confirmed:
            shadow.writes = self.count_writes()
            shadow.instruction = current_instruction()
            self.unconfirmed.append(shadow)
        self.by_storage[tensor.untyped_storage()._cdata] = shadow
        if shadow.storage is not None:
            self.bytes += shadow.nbytes

    def clean(self):
        """Drop the shadows of storages that no longer exist."""
        self.until_cleaning = CLEANING_INTERVAL
        for key in [key for key, shadow in self.by_storage.items() if shadow.reference.expired()]:
            shadow = self.by_storage.pop(key)
            if shadow.storage is not None:
                self.bytes -= shadow.nbytes


def current_instruction():
    """Which instruction of the script is at work; None in threads that run none, as those of autograd."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("brimful_"):
        frame = frame.f_back
    found = []
    while frame is not None and len(found) < MAX_CALLERS:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found) or None
