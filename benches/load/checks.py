"""Is it the same work? Every sample of an epoch against a reference, whatever the order it came in."""

import h5py
import numpy as np
import torch
from peers import mesh_files, token_blocks
from torch.nn import functional


def each_once(marks, found):
    """The reference that each row is nearest to, and whether all of them came once."""
    nearest = torch.cat([torch.cdist(part, marks).argmin(1) for part in found.split(256)])
    return nearest, sorted(nearest.tolist()) == list(range(len(marks)))


def nyu(folder, batches):
    """The largest difference to torch's antialiased interpolation, in levels and in meters."""
    named = {"size": (224, 224), "mode": "bilinear", "antialias": True}
    images, depths = [], []
    with h5py.File(folder / "nyu.h5") as file:
        for number in range(len(file["images"])):
            images.append(functional.interpolate(torch.from_numpy(file["images"][number])[None], **named)[0])
            depth = torch.from_numpy(file["depths"][number])
            depths.append(functional.interpolate(depth[None, None], **named)[0, 0])
    images, depths = torch.stack(images), torch.stack(depths)
    marks = depths[:, ::28, ::28].flatten(1)
    seen, levels, meters, edge = [], 0, 0.0, 0
    for batch in batches:
        image, depth = batch["image"], batch["depth"]
        if (image.dtype, depth.dtype) != (torch.uint8, torch.float32):
            raise TypeError(f"expected uint8 and float32, found {image.dtype} and {depth.dtype}")
        nearest, _ = each_once(marks, depth[:, ::28, ::28].flatten(1))
        seen += nearest.tolist()
        away = (image.short() - images[nearest].short()).abs()
        edge = max(edge, away.max().item())
        levels = max(levels, away[..., 1:-1, 1:-1].max().item())
        meters = max(meters, (depth - depths[nearest])[:, 1:-1, 1:-1].abs().max().item())
    once = sorted(seen) == list(range(len(images)))
    # At the edge DALI repeats the last pixel where torch leaves out what is beyond.
    same = once and levels <= 2 and meters < 1e-3 and edge <= 4
    return verdict(same, samples=len(seen), once=once, levels=levels, meters=meters, levels_at_the_edge=edge)


def text(folder, batches):
    """The very same tokens, each block once."""
    blocks = torch.from_numpy(np.array(token_blocks.mapped(folder), dtype=np.int64))
    rows = torch.cat([batch["tokens"] for batch in batches])
    if len(rows) < len(blocks):
        blocks = blocks[:: token_blocks.PART]
    same = rows.dtype == torch.int64 and sorted(map(tuple, rows.tolist())) == sorted(
        map(tuple, blocks.tolist())
    )
    return verdict(same, samples=len(rows), once=same)


def meshes(folder, batches):
    """The share of voxels that differ."""
    paths = sorted((folder / "meshes").rglob("*.off"))
    grids = torch.stack([mesh_files.voxels(*mesh_files.with_numpy(path)) for path in paths]).flatten(1)
    rows = torch.cat([batch["voxels"].flatten(1).float() for batch in batches])
    nearest, once = each_once(grids, rows)
    differ = (rows != grids[nearest]).sum().item() / max(grids.sum().item(), 1)
    return verdict(once and differ < 0.01, samples=len(rows), once=once, differ=differ)


def verdict(same, **found):
    return {"same": same, **found}


TABLES = {"nyu": nyu, "text": text, "meshes": meshes}
