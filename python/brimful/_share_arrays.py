"""What `brimful.share` does with NumPy and torch, neither of which is imported unless the data has them."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mmap

# Scalars of NumPy that fit into a slot; their place in this list is what is written.
SCALARS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8")
# Arrays up to this size become `bytes` on their way; larger ones are written as they are.
SMALL_BYTES = 1 << 16


def taken_apart(value: object) -> tuple[object, ...] | None:
    """Return what is written of an array, a tensor or a NumPy scalar, and None for anything else.

    Either the library, the type's name, the shape and the bytes; or "scalar", its type, and code and bytes;
    or "refused", what was expected, and what to do.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        if isinstance(value, numpy.ndarray):
            return _array_parts(numpy, value)
        if isinstance(value, numpy.generic):
            return _scalar_parts(numpy, value)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor_parts(torch, value)
    return None


def _array_parts(numpy: Any, value: Any) -> tuple[object, ...]:  # noqa: ANN401
    if type(value) is not numpy.ndarray and type(value) is not numpy.memmap:
        return "refused", "a plain NumPy array", "convert it: numpy.asarray(value)"
    if value.dtype.hasobject:
        hint = "convert it to numbers or fixed-width strings (astype), or share value.tolist()"
        return "refused", "an array without Python objects inside (dtype object)", hint
    whole = numpy.ascontiguousarray(value).reshape(-1)
    name = repr(numpy.lib.format.dtype_to_descr(value.dtype))
    if whole.nbytes == 0:
        data: object = b""
    elif whole.nbytes <= SMALL_BYTES:
        data = whole.tobytes()
    else:
        data = memoryview(whole.view(numpy.uint8))
    return "numpy", name, value.shape, data


def _scalar_parts(numpy: Any, value: Any) -> tuple[object, ...]:  # noqa: ANN401
    name = value.dtype.newbyteorder("=").str[1:].replace("b1", "?")
    if name not in SCALARS:
        return "refused", "a NumPy scalar of up to 8 bytes", "convert it to a Python value: value.item()"
    little = numpy.asarray(value, dtype=value.dtype.newbyteorder("<"))
    return "scalar", name, (SCALARS.index(name), little.tobytes().ljust(8, b"\0"))


def _tensor_parts(torch: Any, value: Any) -> tuple[object, ...]:  # noqa: ANN401
    if type(value) is not torch.Tensor:
        return "refused", "a plain tensor", "convert it: value.detach()"
    if value.device.type != "cpu":
        return "refused", f"a tensor on the CPU, not on {value.device}", "move it first: value.cpu()"
    if value.layout != torch.strided or value.is_quantized or value.is_nested:
        return "refused", "a dense tensor", "share its parts, for example its indices and its values"
    whole = value.detach().resolve_conj().resolve_neg().contiguous()
    n_bytes = whole.numel() * whole.element_size()
    name = str(value.dtype).removeprefix("torch.")
    data: object = b""
    if n_bytes:
        import ctypes

        # By its address, since bytes of every type are wanted and NumPy may be absent.
        window = (ctypes.c_char * n_bytes).from_address(whole.data_ptr())
        window.tensor = whole
        data = bytes(window) if n_bytes <= SMALL_BYTES else memoryview(window).cast("B")
    return "torch", name, tuple(value.shape), data


def write_all(fd: int, data: memoryview) -> int:
    """Write everything; a write may take less than it was given."""
    done = 0
    while done < len(data):
        # Linux writes at most 2 GiB at once; less lets Ctrl-C through.
        done += os.write(fd, data[done : done + (1 << 28)])
    return done


class FileMap:
    """A file in memory: changes stay in this process, since torch knows no tensors that cannot be changed."""

    __slots__ = ("readable", "writable")

    def __init__(self, whole: mmap.mmap) -> None:
        """Keep it, and a view of it that cannot be changed."""
        self.writable = whole
        self.readable = memoryview(whole).toreadonly()


def map_file(fd: int, length: int) -> FileMap:
    """Map a file for arrays."""
    import mmap

    # Without NORESERVE the kernel may refuse to map a file on disk that is larger than memory.
    flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return FileMap(mmap.mmap(fd, length, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE))


def dtype(written: str | int) -> object:
    """Return NumPy's type that is written as a name, or as a code for scalars."""
    np = _library("numpy")
    if isinstance(written, int):
        return np.dtype(SCALARS[written]).newbyteorder("<")
    import ast

    return np.lib.format.descr_to_dtype(ast.literal_eval(written))


def open_tensor(file_map: FileMap, name: str, shape: tuple[int, ...], offset: int, n_bytes: int) -> object:
    """Return a tensor over the shared copy."""
    torch = _library("torch")
    dtype = getattr(torch, name)
    if n_bytes == 0:
        return torch.empty(shape, dtype=dtype)
    count = n_bytes // dtype.itemsize
    return torch.frombuffer(file_map.writable, dtype=dtype, count=count, offset=offset).view(shape)


def _library(name: str) -> Any:  # noqa: ANN401
    return sys.modules.get(name) or importlib.import_module(name)


def big_int(data: bytes) -> int:
    """Return an integer beyond 64 bits."""
    return int.from_bytes(data, "little", signed=True)


def big_int_bytes(value: int) -> bytes:
    """Return its bytes."""
    return value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
