"""Blocks of 512 tokens from one long array of uint16, as 64-bit numbers, shuffled, one epoch.

python benches/load/text.py FOLDER [--rounds 5] [--only NAME] [--check]
"""

import sys

from rounds import Peer, main

PEERS = (
    Peer("brimful", "brimful", "brimful:text", "text/tokens.bin", ours=True),
    Peer("gather", "map with `__getitems__`", "token_blocks:text_gather", "text/tokens.bin"),
    Peer("gather-fork", "the same, fork 2", "token_blocks:text_gather_workers", "text/tokens.bin"),
    Peer("datasets", "Hugging Face datasets, batched", "hf_datasets:text", "text/blocks.arrow"),
    Peer("list", "Python list, fork 2", "token_blocks:text_list", "text/tokens.bin", part=10),
)

if __name__ == "__main__":
    sys.exit(main("text", PEERS, __doc__))
