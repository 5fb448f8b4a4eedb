"""Scratch memory of PyTorch's own reductions on CUDA.

A sum over many values for few results is shared among blocks, which meet in a buffer and count themselves in
another. The rules are those of `setReduceConfig` in PyTorch's `Reduce.cuh`; tests compare what they give with
the buffers on the phantom (2.13).
"""

import math

import torch

aten = torch.ops.aten
# And where each names the dimensions that it reduces, if it does.
REDUCTIONS = {
    aten.sum.default: None,
    aten.sum.dim_IntList: 1,
    aten.mean.default: None,
    aten.mean.dim: 1,
    aten.amax.default: 1,
    aten.amin.default: 1,
    aten.max.default: None,
    aten.min.default: None,
    aten.all.default: None,
    aten.any.default: None,
    aten.linalg_vector_norm.default: 2,
}
WARP = 32
MAX_THREADS = 512
FEWEST_VALUES, MAX_VALUES = 16, 256
OUTPUTS_AT_ONCE = INPUTS_AT_ONCE = 4
COUNTER = 4


def scratch_of(card, func, args):
    """Bytes of the buffers that a call takes while it runs."""
    place = REDUCTIONS[func]
    named = args[place] if place is not None and len(args) > place else None
    return scratch(card, args[0], named)


def scratch(card, source, named=None):
    """Bytes of both buffers; nothing where each block finishes its own results."""
    named = [named] if isinstance(named, int) else named
    reduced = {at % source.dim() for at in named} if named and source.dim() else set(range(source.dim()))
    steps = [(source.stride(at), source.shape[at], at in reduced) for at in range(source.dim())]
    steps = [step for step in steps if step[1] > 1]
    values = math.prod(size for _, size, gone in steps if gone)
    results = math.prod(size for _, size, gone in steps if not gone)
    if source.numel() == 0 or values <= 1:
        return ()
    least_kept = min((stride for stride, _, gone in steps if not gone), default=None)
    least_reduced = min(stride for stride, _, gone in steps if gone)
    along_values = least_kept is None or least_reduced < least_kept
    outputs_at_once = 1
    across, down = (values, results) if along_values else (results, values)
    if along_values:
        if least_reduced == 1 and across > 128 and results == 1 and is_one_run(steps):
            across //= INPUTS_AT_ONCE
    elif least_kept == 1:
        # As many as divide the results that follow each other, and the steps from one row to the next.
        run = next(size for stride, size, gone in steps if stride == 1 and not gone)
        rows = [stride for stride, _, _ in steps if stride != 1]
        outputs_at_once = math.gcd(OUTPUTS_AT_ONCE, run, *rows)
        across //= outputs_at_once
    width, height = block(across, down, MAX_THREADS // outputs_at_once)
    inputs, outputs = (width, 1) if along_values else (1, width)
    each = -(-values // inputs)
    if each < height * FEWEST_VALUES and each < MAX_VALUES:
        return ()
    inputs *= height
    each = -(-values // inputs)
    grid = -(-(results // outputs_at_once) // outputs)
    wanted = card.multiprocessors * (card.threads_per_multiprocessor // (width * height))
    if each < MAX_VALUES or grid > wanted:
        return ()
    blocks = max(min(-(-wanted // grid), -(-each // FEWEST_VALUES)), -(-each // MAX_VALUES))
    if blocks <= 1:
        return ()
    size = accumulator(source.dtype) * results * blocks
    if not along_values:
        size *= width * outputs_at_once
    return (size, COUNTER * grid)


def is_one_run(steps):
    """Whether the values follow each other without gaps."""
    expected = 1
    for stride, size, _ in sorted(steps):
        if stride != expected:
            return False
        expected *= size
    return True


def block(across, down, threads):
    across, down = power_below(across, threads), power_below(down, threads)
    width = min(across, WARP)
    height = min(down, threads // width)
    return min(across, threads // height), height


def power_below(number, most):
    return most if number >= most else 1 << (max(number, 1).bit_length() - 1)


def accumulator(dtype):
    """Bytes of the type in which values of this one are added."""
    if dtype.is_complex or dtype == torch.float64 or not dtype.is_floating_point:
        return 16 if dtype == torch.complex128 else 8
    return 4
