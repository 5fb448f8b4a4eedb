"""What a dataset is made of: which of its bytes a forked worker copies, and which a fresh one must be sent.

Reference counts are written whenever a Python object is looked at, so a forked worker copies the pages of all
objects that it looks at. Buffers (arrays, tensors, long texts) are only read and stay shared. Workers that
are not forked get the dataset pickled: arrays as bytes, tensors through shared memory, numbers one by one.
"""

import io
import math
import pickle
import sys
import time

# Neither may take longer, in time of the processor; long lists are sampled.
WALK_SECONDS = 1.0
PICKLE_SECONDS = 1.0
# Looking at objects copies their pages in the process that looks: about ten times as many bytes as these.
MAX_PICKLED = 48 << 20
# Elements that are looked at: of a long container, and of one that is itself an element of a sampled one.
SAMPLED = 2000
SAMPLED_WITHIN = 50
# Python has its larger objects from malloc, apart from the small ones.
SMALL_BYTES = 512
# A list without its table.
HEAD_BYTES = 56
PAGE = 4096
# glibc gives freed memory back at once only from this size on, whatever came before (M_MMAP_THRESHOLD_MAX).
HEAP_BYTES = 32 << 20
COUNTED = ("buffers", "arrays", "tensors", "heap_tensors", "n_tensors")
COUNTED += ("objects", "fresh", "numbers", "number_bytes")
ATOMS = (int, float, complex, bool, type(None))


def composition(dataset, torch):
    """Tell what `dataset` is made of, in bytes."""
    walk = Walk(torch)
    walk.look_at(dataset)
    found = walk.found()
    found.update(pickled(dataset, torch, found))
    return found


def rounded(size):
    """As Python's allocator and malloc round it."""
    return (size + 15) & ~15 if size <= 512 else (size + 8 + 15) & ~15


class Walk:
    """One walk over a dataset: level by level, long containers sampled and multiplied."""

    def __init__(self, torch):
        self.torch = torch
        self.numpy = sys.modules.get("numpy")
        self.until = time.process_time() + WALK_SECONDS
        self.seen = set()
        self.buffers = 0.0  # read only: arrays and long texts
        self.arrays = 0.0
        self.tensors = 0.0
        self.heap_tensors = 0.0
        self.n_tensors = 0.0
        self.objects = 0.0  # with a reference count, each once
        self.fresh = 0.0  # the same after a pickle: numbers are no longer shared
        self.numbers = 0.0  # references to numbers, and their bytes
        self.number_bytes = 0.0
        self.drawn = 0
        self.drawn_ids = set()
        self.cut = False

    def look_at(self, root):
        level = [(root, 1.0)]
        while level:
            following = []
            before = [getattr(self, name) for name in COUNTED]
            for place, (thing, weight) in enumerate(level):
                following.extend(self.one(thing, weight))
                if place % 256 == 255 and time.process_time() > self.until:
                    # What was not reached is taken to be like the rest of its level.
                    self.cut = True
                    share = len(level) / (place + 1)
                    for name, so_far in zip(COUNTED, before, strict=True):
                        setattr(self, name, so_far + (getattr(self, name) - so_far) * share)
                    step = max(1, len(following) // 5000)
                    following = [(thing, weight * share * step) for thing, weight in following[::step]]
                    self.until = time.process_time() + WALK_SECONDS / 4
                    break
            level = following

    def one(self, thing, weight):
        """Count one object; what it holds comes next."""
        kind = type(thing)
        if kind in ATOMS:
            self.atom(thing, weight)
            return ()
        if id(thing) in self.seen:
            return ()
        self.seen.add(id(thing))
        if isinstance(thing, (str, bytes, bytearray)):
            size = rounded(sys.getsizeof(thing))
            # The count is written at its beginning: the first page of a long text is copied, the rest is not.
            self.objects += min(size, PAGE) * weight
            self.buffers += max(0, size - PAGE) * weight
            self.fresh += size * weight
            return ()
        if isinstance(thing, self.torch.Tensor):
            return self.tensor(thing, weight)
        if self.numpy is not None and isinstance(thing, self.numpy.ndarray):
            return self.array(thing, weight)
        if kind in (type, type(sys), type(len), type(lambda: 0)) or isinstance(thing, type):
            return ()
        if isinstance(thing, (list, tuple, set, frozenset)):
            elements = list(thing) if isinstance(thing, (set, frozenset)) else thing
            return self.container(thing, elements, weight)
        if isinstance(thing, dict):
            return self.table(thing, weight)
        return self.instance(thing, weight)

    def atom(self, thing, weight):
        if thing is None or kind_is_small(thing):
            return
        size = rounded(sys.getsizeof(thing)) * weight
        self.fresh += size
        self.numbers += weight
        self.number_bytes += size
        self.drawn += 1
        self.drawn_ids.add(id(thing))

    def tensor(self, thing, weight):
        self.objects += 200 * weight
        self.fresh += 200 * weight
        if thing.device.type != "cpu" or thing.is_sparse:
            return ()
        storage = thing.untyped_storage()
        if storage.data_ptr() in self.seen:
            return ()
        self.seen.add(storage.data_ptr())
        size = storage.nbytes()
        self.buffers += size * weight
        self.tensors += math.ceil(size / PAGE) * PAGE * weight
        self.n_tensors += weight
        if size < HEAP_BYTES:
            self.heap_tensors += size * weight
        return ()

    def array(self, thing, weight):
        self.objects += 112 * weight
        self.fresh += 112 * weight
        if isinstance(thing, self.numpy.memmap):
            return ()  # pages of a file
        base = thing
        while isinstance(base.base, self.numpy.ndarray):
            base = base.base
        if isinstance(base, self.numpy.memmap):
            return ()
        self.arrays += thing.nbytes * weight  # a view is sent as a whole array of its own
        if id(base) not in self.seen or base is thing:
            self.seen.add(id(base))
            self.buffers += base.nbytes * weight
        if thing.dtype.hasobject:
            return self.sampled(thing.reshape(-1), weight)
        return ()

    def container(self, thing, elements, weight):
        size = rounded(sys.getsizeof(thing)) * weight
        # The table of a list or set lies apart from its head, and is only read.
        body = 0 if isinstance(thing, tuple) else sys.getsizeof(thing) - HEAD_BYTES
        if body > SMALL_BYTES:
            self.buffers += body * weight
            self.objects += size - body * weight
        else:
            self.objects += size
        self.fresh += size
        return self.sampled(elements, weight)

    def table(self, thing, weight):
        size = rounded(sys.getsizeof(thing)) * weight
        if size / weight > SMALL_BYTES:
            self.buffers += size
        else:
            self.objects += size
        self.fresh += size
        if len(thing) <= SAMPLED:
            return [(part, weight) for item in thing.items() for part in item]
        stride, share = len(thing) // SAMPLED, len(thing) / SAMPLED
        taken = []
        for place, item in enumerate(thing.items()):
            if place % stride == 0 and len(taken) < 2 * SAMPLED:
                taken.extend((part, weight * share) for part in item)
        return taken

    def instance(self, thing, weight):
        size = rounded(sys.getsizeof(thing)) * weight
        self.objects += size
        self.fresh += size
        held = []
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict):
            held.append((attributes, weight))
        for kind in type(thing).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            names = (slots,) if isinstance(slots, str) else slots
            held.extend((getattr(thing, name), weight) for name in names if hasattr(thing, name))
        return held

    def sampled(self, elements, weight):
        length = len(elements)
        most = SAMPLED if weight <= 1 else SAMPLED_WITHIN
        if length <= most:
            return [(element, weight) for element in elements]
        # Spread over the whole: the beginning of a list is often not like the rest.
        step = length / most
        return [(elements[int(place * step)], weight * step) for place in range(most)]

    def found(self):
        if self.drawn:
            different = distinct(self.drawn, len(self.drawn_ids), self.numbers)
            self.objects += self.number_bytes / self.numbers * different
        return {
            "buffer_bytes": round(self.buffers),
            "array_bytes": round(self.arrays),
            "tensor_bytes": round(self.tensors),
            "heap_tensor_bytes": round(self.heap_tensors),
            "tensors": round(self.n_tensors),
            "object_bytes": round(self.objects),
            "fresh_object_bytes": round(self.fresh),
            "cut": self.cut,
        }


def kind_is_small(thing):
    """Whether there is only one of it in the whole program."""
    return type(thing) is bool or (type(thing) is int and -5 <= thing <= 256)


def distinct(draws, different, total):
    """How many objects there are in all, if `draws` of `total` references showed so many different ones."""
    if different >= draws * 0.98:
        return total
    # Draws from n objects show n times 1 - exp(-draws / n) different ones.
    low, high = float(different), float(total) + 1
    for _ in range(60):
        middle = (low + high) / 2
        if middle * -math.expm1(-draws / middle) < different:
            low = middle
        else:
            high = middle
    return low * -math.expm1(-total / low)


class Sink(io.RawIOBase):
    """Counts what is written to it, and ends the pickling when it takes too long."""

    def __init__(self):
        self.written = 0
        self.until = time.process_time() + PICKLE_SECONDS

    def write(self, piece):
        self.written += len(piece)
        if self.written > MAX_PICKLED or time.process_time() > self.until:
            raise TimeoutError
        return len(piece)


def pickled(dataset, torch, found):
    """Bytes that a worker which is not forked is sent, besides arrays and tensors.

    Arrays and tensors are counted and left out, since pickling them would copy them.
    """
    numpy = sys.modules.get("numpy")
    sent = {"array": 0, "largest": 0, "tensor": 0, "heap": 0, "tensors": 0}
    storages = set()

    class Counter(pickle.Pickler):
        def reducer_override(self, thing):
            if numpy is not None and type(thing) is numpy.ndarray and not thing.dtype.hasobject:
                sent["array"] += thing.nbytes
                sent["largest"] = max(sent["largest"], thing.nbytes)
                return bool, ()
            if isinstance(thing, torch.Tensor):
                if thing.device.type == "cpu" and not thing.is_sparse:
                    storage = thing.untyped_storage()
                    if storage.data_ptr() not in storages:
                        storages.add(storage.data_ptr())
                        size = storage.nbytes()
                        sent["tensors"] += 1
                        sent["tensor"] += math.ceil(size / PAGE) * PAGE
                        sent["heap"] += size if size < HEAP_BYTES else 0
                return bool, ()
            return NotImplemented

    sink = Sink()
    whole = True
    try:
        Counter(sink, protocol=pickle.DEFAULT_PROTOCOL).dump(dataset)
    except TimeoutError:
        whole = False
    except Exception:
        # It cannot be pickled: only fork is possible, or the script makes it so in the worker.
        return {"pickles": False, "protocol": pickle.DEFAULT_PROTOCOL, "pickled_bytes": 0, "largest_array": 0}
    said = {"pickles": True, "protocol": pickle.DEFAULT_PROTOCOL, "pickled_bytes": sink.written}
    if whole:
        # What the walk found may not be sent: a dataset can leave its cache behind.
        share = min(1.0, (sink.written + sent["array"] + sent["tensor"] + 4096) / max(1, least(found)))
        said.update(
            array_bytes=sent["array"],
            tensor_bytes=sent["tensor"],
            heap_tensor_bytes=sent["heap"],
            tensors=sent["tensors"],
            largest_array=sent["largest"],
        )
        if share < 0.5:
            said["fresh_object_bytes"] = round(found["fresh_object_bytes"] * share)
    else:
        # About a seventh of what the objects take: numbers below 2^31 are 3 to 5 bytes of 36 to 40.
        said["pickled_bytes"] = max(sink.written, found["fresh_object_bytes"] // 7)
        said["largest_array"] = max(sent["largest"], found["array_bytes"] // 2)
    return said


def least(found):
    """Fewer bytes cannot carry all of it."""
    return found["fresh_object_bytes"] // 20 + found["array_bytes"] + found["tensor_bytes"]
