"""Assumed values: what stands in for values that only the model could compute.

They are finite and not all equal, losses are above zero and fall slowly, `all` is true and `any` is false:
checks pass and loops end. Choices among classes or experts are balanced and masks select everything, unless
the rehearsal asks for another case (`CASE`). Everything in here is a function of shapes and arguments.
"""

import os

import torch

# `balanced`: masks select half of the elements. `worst`: nearly all choices are the same.
CASE = os.environ.get("BRIMFUL_REHEARSAL_CASE", "")

CPU = torch.device("cpu")
# The fractional part of multiples of the golden ratio: spread evenly, and never the same twice.
GOLDEN = 0.6180339887498949
# A loss that falls slowly, as scripts read it.
FIRST_LOSS = 0.9
DECAY = 0.9995
# More choices than these are words of a vocabulary.
MIN_VOCABULARY = 1000


def loss(reads):
    """The value of a single number that is read for the n-th time."""
    return max(FIRST_LOSS * DECAY**reads, 0.05)


def spread(shape, dtype):
    """Different numbers between 0.1 and 0.9."""
    count = torch.Size(shape).numel()
    values = torch.arange(count, dtype=torch.float64, device=CPU).mul_(GOLDEN).frac_().mul_(0.8).add_(0.1)
    return values.to(dtype).view(shape)


def probabilities(shape, dtype):
    """As `spread`, with rows that sum to one."""
    values = spread(shape, torch.float64)
    return (values / values.sum(-1, keepdim=True)).to(dtype) if values.dim() else values.to(dtype)


def balanced_choices(shape, choices, dim=-1):
    """Indices below `choices`, evenly used but in the worst case; different ones along `dim`."""
    count = torch.Size(shape).numel()
    if not shape:
        return torch.zeros((), dtype=torch.int64, device=CPU)
    at_once = 1 if dim is None else shape[dim]
    rows = torch.arange(count, dtype=torch.int64, device=CPU)
    if choices > MIN_VOCABULARY:
        # Words, not the special tokens at the ends of a vocabulary: no text ends with its first token.
        rows = rows.remainder_(choices // 2).add_(choices // 4)
    elif CASE == "worst" and at_once < choices:
        # Each is chosen once, so that it gets gradients; then always the first ones.
        once = -(-choices // at_once) * at_once
        rows[:once].remainder_(choices)
        rows[once:].remainder_(at_once)
    else:
        rows = rows.remainder_(max(choices, 1))
    if dim is None:
        return rows.view(shape)
    dim %= len(shape)
    moved = [*shape[:dim], *shape[dim + 1 :], at_once]
    return rows.view(moved).movedim(-1, dim)


def positions(shape, dim=-1):
    """A permutation along `dim`: every element where it was."""
    if not shape:
        return torch.zeros((), dtype=torch.int64, device=CPU)
    dim %= len(shape)
    line = torch.arange(shape[dim], dtype=torch.int64, device=CPU)
    return line.view([-1 if at == dim else 1 for at in range(len(shape))]).expand(shape)


def count_of(elements):
    """The sum over a condition: how many of some elements fulfil it."""
    return elements if CASE == "worst" else max(elements // 2, 1)


def n_selected(elements):
    """How many of some elements a mask selects."""
    return (elements + 1) // 2 if CASE == "balanced" else elements
