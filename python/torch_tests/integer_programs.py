"""Random programs of integer and boolean operators, on the CPU and on the phantom with brimful's shadows.

Run as `integer_programs.py HOOK_DIRECTORY PROGRAMS`. Prints how many tensors were known, and how many of
those have other values than on the CPU.
"""
# ruff: noqa: ARG005, S311, T201

from __future__ import annotations

import ctypes
import json
import random
import sys

import torch
from torch.nn import functional

STEPS = 40
LIVE = 6

# Each gets the tensor, another one of its shape, any other one, the generator and the device.
OPERATORS = [
    lambda t, same, other, g, device: t + same,
    lambda t, same, other, g, device: t * 3,
    lambda t, same, other, g, device: t % 5,
    lambda t, same, other, g, device: t // 2 - same,
    lambda t, same, other, g, device: (t > 3).long(),
    lambda t, same, other, g, device: ((t > 3) & (same < 9) | ~(t == 1)).long(),
    lambda t, same, other, g, device: t[t > 2],
    lambda t, same, other, g, device: torch.unique(t),
    lambda t, same, other, g, device: torch.unique(t, return_counts=True)[1],
    lambda t, same, other, g, device: torch.unique_consecutive(t),
    lambda t, same, other, g, device: t.flatten().clamp(0, 50).bincount(),
    lambda t, same, other, g, device: t.mT if t.dim() == 2 else t.flip(0),
    lambda t, same, other, g, device: t.cumsum(0),
    lambda t, same, other, g, device: t.add_(1),
    lambda t, same, other, g, device: t.sub_(same),
    lambda t, same, other, g, device: t[:1].fill_(7),
    lambda t, same, other, g, device: t[::2].mul_(2),
    lambda t, same, other, g, device: torch.cat([t.flatten(), other.flatten()]),
    lambda t, same, other, g, device: t.clone().masked_fill_(t == 7, -1),
    lambda t, same, other, g, device: torch.where(t > 1, t, -same),
    lambda t, same, other, g, device: t.sort(dim=0, stable=True)[0],
    lambda t, same, other, g, device: t.argsort(dim=0, stable=True),
    lambda t, same, other, g, device: torch.zeros(t.shape, dtype=torch.long, device=device),
    lambda t, same, other, g, device: torch.full_like(t, 5),
    lambda t, same, other, g, device: torch.arange(t.numel(), device=device).reshape(t.shape),
    lambda t, same, other, g, device: t.sum(0, keepdim=True),
    lambda t, same, other, g, device: t.max(dim=0)[0],
    lambda t, same, other, g, device: t.argmin(),
    lambda t, same, other, g, device: (t > 4).any(dim=0).long(),
    lambda t, same, other, g, device: torch.nonzero(t),
    lambda t, same, other, g, device: t.abs().clamp(max=4).flatten().repeat_interleave(2),
    lambda t, same, other, g, device: t.flatten().repeat_interleave(t.flatten().clamp(0, 3)),
    lambda t, same, other, g, device: torch.full((int(t.max().item()) % 7 + 1,), 3, device=device),
    lambda t, same, other, g, device: t.to(torch.int32).float().floor().long(),
    lambda t, same, other, g, device: torch.zeros_like(t).scatter_(0, torch.zeros_like(t), t),
    lambda t, same, other, g, device: torch.zeros(9, dtype=torch.long, device=device).index_add_(
        0, t.flatten().clamp(0, 8), same.flatten()
    ),
    lambda t, same, other, g, device: t.reshape(-1)[::2],
    lambda t, same, other, g, device: t.flatten()[torch.randperm(t.numel(), generator=g).to(device)],
    lambda t, same, other, g, device: functional.one_hot(t.clamp(0, 9)),
    # Only a GPU knows what this gives.
    lambda t, same, other, g, device: (t.float() @ torch.ones(t.shape[-1], 2, device=device)).long(),
    lambda t, same, other, g, device: torch.stack([t, same]),
    lambda t, same, other, g, device: torch.empty_like(t).copy_(t) // 2,
    lambda t, same, other, g, device: torch.tensor(t.flatten()[:4].tolist(), device=device),
    lambda t, same, other, g, device: t.tril() if t.dim() == 2 else torch.searchsorted(t.sort()[0], t),
    lambda t, same, other, g, device: functional.pad(t, (1, 2), value=4).roll(1, 0),
]


def run(seed: int, device: str) -> list[torch.Tensor]:
    """Run a program; whatever happens on the way, the choices are the same on every device."""
    choices = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    shapes = [(choices.randint(1, 6), choices.randint(1, 6)) for _ in range(3)]
    live = [torch.randint(-5, 20, shape, generator=generator).to(device) for shape in shapes]
    for _ in range(STEPS):
        operator = choices.choice(OPERATORS)
        tensor, other = choices.choice(live), choices.choice(live)
        same = choices.choice([one for one in live if one.shape == tensor.shape])
        drop = choices.random()
        try:
            made = operator(tensor, same, other, generator, device)
        except (IndexError, RuntimeError):
            continue
        if 0 < made.numel() < 3000 and made.dim():
            live.append(made)
        while len(live) > LIVE:  # the allocator gives the addresses of what is dropped to others
            live.pop(int(drop * len(live)))
    return live


def main(hook: str, programs: int) -> None:
    """Compare programs, and print what was found as JSON."""
    sys.path.insert(0, hook)
    import brimful_operators

    phantom = ctypes.CDLL(None)
    counters = [
        ctypes.c_uint64.in_dll(phantom, f"BRIMFUL_PHANTOM_{name}") for name in ("WRITES", "FOREIGN_LAUNCHES")
    ]
    caveats, problems = [], []
    operators = brimful_operators.Operators(
        lambda kind, text: caveats.append((kind, text)),
        problems.append,
        lambda: counters[0].value,
        lambda: counters[1].value,
    )
    operators.install()
    found = {"tensors": 0, "true": 0, "compared": 0, "mismatches": []}
    for seed in range(programs):
        caveats.clear()
        expected, actual = run(seed, "cpu"), run(seed, "cuda")
        for one, other in zip(expected, actual, strict=False):
            found["tensors"] += 1
            shadow = operators.shadows.find(other)
            if shadow is None or not shadow.is_true:
                continue
            found["true"] += 1
            # Once a shape or a number was assumed, and a caveat given, a program goes another way.
            if not caveats:
                found["compared"] += 1
                if one.shape != other.shape or not torch.equal(one, other.cpu()):
                    found["mismatches"].append([seed, one.tolist(), other.cpu().tolist()])
    print(json.dumps({**found, "problems": problems[:5]}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
