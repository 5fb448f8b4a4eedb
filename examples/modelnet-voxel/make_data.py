"""Write made-up meshes of spheres, boxes and tori as OFF files, in folders like those of ModelNet."""

import argparse
from pathlib import Path

import numpy as np

ROWS, COLUMNS = 40, 60  # a mesh has about as many vertices as their product


def bend(kind: str, u: np.ndarray, v: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Return the points of a surface at `u` and `v`, both angles from 0 to a full turn."""
    if kind == "torus":
        ring = 1 + (0.2 + 0.4 * shape[0]) * np.cos(v)
        points = np.stack((ring * np.cos(u), ring * np.sin(u), (0.2 + 0.4 * shape[0]) * np.sin(v)), axis=-1)
    else:
        height, ring = np.cos(v / 2), np.sin(v / 2)
        points = np.stack((ring * np.cos(u), ring * np.sin(u), height), axis=-1)
        if kind == "box":
            points /= np.abs(points).max(axis=-1, keepdims=True)
    return points * (0.5 + shape)


def make_faces() -> np.ndarray:
    """Return the triangles of a grid of vertices that is closed in both directions."""
    rows, columns = np.meshgrid(np.arange(ROWS), np.arange(COLUMNS), indexing="ij")
    a, b = rows * COLUMNS + columns, rows * COLUMNS + (columns + 1) % COLUMNS
    c, d = ((rows + 1) % ROWS * COLUMNS + other % COLUMNS for other in (columns, columns + 1))
    return np.concatenate((np.stack((a, b, c), -1).reshape(-1, 3), np.stack((b, d, c), -1).reshape(-1, 3)))


def main() -> None:
    """Write the meshes in turns over the classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meshes", type=int, default=1600)
    parser.add_argument("--output", type=Path, default="meshes")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    u, v = np.meshgrid(np.linspace(0, 2 * np.pi, COLUMNS, False), np.linspace(0, 2 * np.pi, ROWS))  # noqa: FBT003
    faces = "".join(f"3 {a} {b} {c}\n" for a, b, c in make_faces().tolist())
    for number in range(arguments.meshes):
        kind = ("sphere", "box", "torus")[number % 3]
        points = bend(kind, u, v, random.random(3)).reshape(-1, 3)
        vertices = "".join(f"{x:.5f} {y:.5f} {z:.5f}\n" for x, y, z in points.tolist())
        path = arguments.output / kind / "train" / f"{kind}_{number:04}.off"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"OFF\n{ROWS * COLUMNS} {2 * ROWS * COLUMNS} 0\n{vertices}{faces}")
    print(f"{arguments.meshes} meshes in {arguments.output}")


if __name__ == "__main__":
    main()
