"""A dataset in a module of its own: a worker that is not forked imports it, and cannot import a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

import brimful


class Samples(Dataset[Any]):
    """What users have: lists, arrays and tensors on self."""

    def __init__(self) -> None:
        numbers = np.arange(64 * 12, dtype=np.float32).reshape(64, 3, 4)
        self.texts = brimful.share([f"text {number}" for number in range(64)])
        self.images = brimful.share(numbers)
        self.targets = brimful.share(torch.arange(64, dtype=torch.bfloat16))
        self.records = brimful.share(
            [
                {"label": number, "box": torch.full((4,), number), "mask": numbers[number] > 3}
                for number in range(64)
            ]
        )

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, idx: int) -> Any:  # noqa: ANN401
        image = torch.from_numpy(self.images[idx].copy())
        record = {**self.records[idx]}
        record["mask"] = record["mask"].copy()  # torch warns of arrays that cannot be written to
        return self.texts[idx], image, self.targets[idx], record
