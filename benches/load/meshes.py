"""OFF meshes to grids of 32 x 32 x 32 voxels, shuffled, one epoch.

python benches/load/meshes.py FOLDER [--rounds 5] [--only NAME] [--check]
"""

import sys

from rounds import Peer, main

PEERS = (
    Peer("brimful", "brimful", "brimful:meshes", "meshes", ours=True),
    Peer("numpy", "DataLoader with a parser in NumPy, fork 2", "mesh_files:meshes_numpy", "meshes"),
    Peer("trimesh", "DataLoader with trimesh, fork 2", "mesh_files:meshes_trimesh", "meshes"),
)

if __name__ == "__main__":
    sys.exit(main("meshes", PEERS, __doc__))
