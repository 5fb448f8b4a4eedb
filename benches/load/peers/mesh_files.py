"""torch.utils.data.DataLoader over OFF files, read with NumPy or with trimesh, to grids of voxels."""

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PACKAGES = ("trimesh",)

RESOLUTION = 32


def with_numpy(path):
    """Vertices and triangles; all numbers of the file in one call."""
    # Some files of ModelNet have no line break after OFF.
    numbers = np.fromstring(path.read_text().removeprefix("OFF"), dtype=np.float32, sep=" ")
    n_vertices, n_faces = int(numbers[0]), int(numbers[1])
    end = 3 + 3 * n_vertices
    faces = numbers[end : end + 4 * n_faces].reshape(-1, 4)[:, 1:]
    return numbers[3:end].reshape(-1, 3), faces.astype(np.int32)


def with_trimesh(path):
    """Vertices and triangles, without the cleaning that trimesh does when it is not told otherwise."""
    import trimesh

    mesh = trimesh.load_mesh(path, process=False, maintain_order=True)
    return np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces)


def voxels(vertices, faces):
    """Ones where there are vertices or middles of triangles."""
    points = np.concatenate((vertices, vertices[faces].mean(axis=1)))
    points -= (points.min(axis=0) + points.max(axis=0)) / 2
    places = ((points / np.abs(points).max() + 1) * ((RESOLUTION - 1) / 2)).round().astype(np.int64)
    grid = np.zeros((RESOLUTION,) * 3, np.float32)
    grid[tuple(places.T)] = 1
    return torch.from_numpy(grid)


class Meshes(Dataset):
    def __init__(self, folder, read):
        self.paths, self.read = sorted((folder / "meshes").rglob("*.off")), read

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, number):
        return voxels(*self.read(self.paths[number]))


def stacked(grids):
    return {"voxels": torch.stack(grids)}


def load(folder, batch_size, threads, read):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    named = {"shuffle": True, "generator": generator, "collate_fn": stacked, "num_workers": threads}
    named |= {"multiprocessing_context": "fork", "prefetch_factor": 1}
    return iter(DataLoader(Meshes(folder, read), batch_size, **named))


def meshes_numpy(folder, batch_size, threads):
    return load(folder, batch_size, threads, with_numpy)


def meshes_trimesh(folder, batch_size, threads):
    return load(folder, batch_size, threads, with_trimesh)
