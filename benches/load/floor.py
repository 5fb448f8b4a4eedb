"""What cannot be saved: the bytes of the images' table copied from the map by two threads, beside ours.

python benches/load/floor.py FOLDER [--rounds 5]
"""

import sys

from rounds import Peer, main

PEERS = (
    Peer("floor", "copying the source, nothing else", "floor", "npy"),
    Peer("brimful", "brimful, HDF5", "brimful", "nyu.h5", ours=True),
)

if __name__ == "__main__":
    sys.exit(main("nyu", PEERS, __doc__))
