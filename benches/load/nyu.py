"""Images and depths made small: 3 x 640 x 480 uint8 and 640 x 480 float32 to 224 x 224, shuffled, one epoch.

python benches/load/nyu.py FOLDER [--rounds 5] [--limit 768MB --peer-limit 1200MB] [--only NAME] [--check]
"""

import sys

from rounds import Peer, main

PEERS = (
    Peer("brimful", "brimful, HDF5", "brimful", "nyu.h5", ours=True),
    Peer("brimful-arrow", "brimful, Arrow", "brimful:batches_arrow", "arrow", ours=True),
    Peer("threads", "Python threads over a map", "threads", "npy"),
    Peer("grain", "grain, threads", "grain_maps", "npy"),
    Peer("spdl", "SPDL", "spdl_threads", "npy"),
    Peer("dali", "DALI on the processors", "dali_cpu", "npy"),
    Peer("torch-memory", "DataLoader in memory, 0 workers", "torch_memory", "nyu.h5"),
    Peer("torch-memory-spawn", "DataLoader in memory, spawn 2", "torch_memory:batches_spawn", "nyu.h5"),
    Peer("h5py", "DataLoader with h5py, fork 2", "torch_h5py", "nyu.h5"),
    Peer("datasets", "Hugging Face datasets, fork 2", "hf_datasets", "arrow"),
    Peer("mosaic", "mosaicml-streaming, 2 workers", "mosaic", "mds"),
    Peer("litdata", "litdata, 2 workers", "litdata_chunks", "litdata"),
    Peer("webdataset", "WebDataset, 2 workers", "webdataset_tar", "tar"),
)

if __name__ == "__main__":
    sys.exit(main("nyu", PEERS, __doc__))
