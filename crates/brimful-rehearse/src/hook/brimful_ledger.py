"""The births and deaths of storages, as PyTorch's allocator would record them."""

import functools
import weakref

# Addresses are only names: each allocation has its own, none is used twice.
FIRST_ADDRESS = 1 << 44
ROUNDING = 512


class Birth:
    """One allocation."""

    __slots__ = ("address", "reference", "size")

    def __init__(self, reference, size):
        self.reference = reference
        self.size = size
        self.address = None  # until it is recorded


class Ledger:
    """Allocations and frees in order; a storage is followed by a weak reference to it."""

    def __init__(self):
        self.events = []  # (whether it is a birth, address, size)
        self.living = {}  # a storage's identity -> Birth
        self.next_address = FIRST_ADDRESS
        self.allocated = 0
        self.peak = 0
        self.unsettled = None  # a sum that may have been made in place: its Birth, the operand's identity

    def count(self):
        self.settle()
        return len(self.events)

    def see(self, tensor, over=None):
        """A tensor was made; `over` is an operand in whose memory it may lie, if that dies at once."""
        storage = tensor.untyped_storage()
        size = storage.nbytes()
        birth = self.living.get(storage._cdata)
        if birth is not None:
            if birth.size != size:  # resized in place
                self.settle()
                self.free(birth)
                birth.size = size
                self.allocate(birth)
            return
        if size == 0:
            return
        key = storage._cdata
        self.settle()
        birth = Birth(weakref.ref(storage, functools.partial(self.dead, key)), size)
        self.living[key] = birth
        operand = None if over is None else self.living.get(over)
        if operand is not None and operand.size == size and operand.address is not None:
            self.unsettled = (birth, over)
        else:
            self.allocate(birth)

    def keep(self, size):
        """Memory that a library takes for good."""
        self.settle()
        self.allocate(Birth(None, size))

    def use(self, sizes):
        """Memory that a kernel takes while it runs."""
        self.settle()
        births = [Birth(None, size) for size in sizes]
        for birth in births:
            self.allocate(birth)
        for birth in reversed(births):
            self.free(birth)

    def dead(self, key, reference):
        birth = self.living.get(key)
        if birth is None or birth.reference is not reference:
            return
        del self.living[key]
        if self.unsettled is not None and self.unsettled[1] == key:
            self.unsettled[0].address = birth.address
            self.unsettled = None
            return
        self.settle()
        self.free(birth)

    def settle(self):
        """The operand outlived the sum: it was not made in place."""
        if self.unsettled is not None:
            birth, _ = self.unsettled
            self.unsettled = None
            self.allocate(birth)

    def allocate(self, birth):
        birth.address = self.next_address
        self.next_address += rounded(birth.size) + ROUNDING
        self.events.append((True, birth.address, birth.size))
        self.allocated += rounded(birth.size)
        self.peak = max(self.peak, self.allocated)

    def free(self, birth):
        if birth.size:
            self.events.append((False, birth.address, birth.size))
            self.allocated -= rounded(birth.size)

    def address(self, storage):
        birth = self.living.get(storage._cdata)
        return birth.address if birth is not None else None

    def snapshot(self, settings):
        """In the form of `torch.cuda.memory._snapshot()`, with a history and without segments."""
        self.settle()
        history = []
        for born, address, size in self.events:
            actions = ("alloc",) if born else ("free_requested", "free_completed")
            history += [{"action": action, "addr": address, "size": size, "stream": 0} for action in actions]
        return {
            "segments": [],
            "device_traces": [history],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": settings},
        }


def rounded(size):
    return -(-size // ROUNDING) * ROUNDING
