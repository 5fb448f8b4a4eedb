"""Saves a checkpoint to a disk that is full. Dies of "no space left", which is not memory.

disk_full.py FOLDER
"""

import sys
from pathlib import Path

import torch

weights = {"weight": torch.zeros(16 << 20)}
torch.save(weights, Path(sys.argv[1]) / "checkpoint.pt")
