"""A training with a dataset and a model of the asked size. Nothing in here knows of brimful.

The dataset is one array, a list of tensors or a list of Python objects; making a sample costs the asked
processor time; the model is an MLP, a CNN or a transformer, on the GPU where there is one.
"""

import argparse
import contextlib
import json
import pathlib
import time

import numpy as np
import torch
from torch import nn

VALUES = 256  # of each sample that the model sees


class Data(torch.utils.data.Dataset):
    """Samples of the asked kind, all of them in memory."""

    def __init__(self, kind, megabytes, work_us, *, look_at_all):
        self.is_seen = not look_at_all
        self.work = work_us / 1e6
        self.kind = kind
        generator = np.random.default_rng(0)
        total = megabytes << 20
        if kind == "array":
            self.rows = generator.random((total // 16_384, 4096), dtype=np.float32)
        elif kind == "tensors":
            # Few and large: a fork server cannot be sent more than 250 of them.
            self.rows = [torch.rand(1 << 21) for _ in range(total // (8 << 20))]
        else:
            # A list of lists of floats: 24 bytes for each float and 8 for its place.
            self.rows = [generator.random(512).tolist() for _ in range(total // (512 * 32))]

    def __len__(self):
        """Tell how many samples an epoch has."""
        return 1 << 20

    def look_at_all(self):
        """Look at every sample once, as each process has in time: a short run then stands for a long one."""
        self.is_seen = True
        for row in self.rows:
            row[:VALUES]

    def __getitem__(self, index):
        """Make one sample."""
        if not self.is_seen:
            self.look_at_all()
        row = self.rows[(index * 7919) % len(self.rows)]
        end = time.thread_time() + self.work
        if self.kind == "tensors":
            start = (index * VALUES) % (1 << 20)
            values = row[start : start + VALUES].clone()
        elif self.kind == "array":
            values = torch.from_numpy(row[:VALUES].copy())
        else:
            values = torch.tensor(row[:VALUES])
        while time.thread_time() < end:
            pass
        return values


class Card:
    """A card that works beside the program for so long per sample; the phantom's takes no time at all."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.free_at = 0.0

    def launch(self, samples):
        """Queue a micro-batch."""
        self.free_at = max(self.free_at, time.perf_counter()) + samples * self.seconds

    def wait(self):
        """Wait for all that was queued, as reading a loss does."""
        time.sleep(max(0.0, self.free_at - time.perf_counter()))


def model_of(name, width):
    """Return a model that takes batches of VALUES numbers."""
    if name == "mlp":
        return nn.Sequential(
            nn.Linear(VALUES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
    if name == "cnn":
        return nn.Sequential(
            nn.Unflatten(1, (1, 16, 16)),
            nn.Conv2d(1, width // 8, 3, padding=1),
            nn.ReLU(),
            nn.Upsample(scale_factor=8),
            nn.Conv2d(width // 8, width // 8, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(width * 2, 1),
        )
    layer = nn.TransformerEncoderLayer(width, 4, width * 4, batch_first=True)
    return nn.Sequential(
        nn.Unflatten(1, (VALUES, 1)),
        nn.Linear(1, width),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Flatten(),
        nn.Linear(VALUES * width, 1),
    )


def arguments():
    """What may be asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=("array", "tensors", "objects"), default="array")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--work-us", type=float, default=100)
    parser.add_argument("--model", choices=("mlp", "cnn", "transformer"), default="mlp")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--start-method", default="fork")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0, help="go on at least so long")
    parser.add_argument("--look-at-all", action="store_true", help="each process looks at all samples first")
    parser.add_argument("--card-us", type=float, default=0, help="of a card's time for each sample")
    parser.add_argument("--resume")
    parser.add_argument("--report", help="append one JSON line with the measured rate")
    return parser.parse_args()


def main():
    """Train and tell how fast."""
    asked = arguments()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = Data(asked.kind, asked.megabytes, asked.work_us, look_at_all=asked.look_at_all)
    with torch.device(device):
        model = model_of(asked.model, asked.width)
    card = Card(asked.card_us / 1e6)
    optimizer = torch.optim.AdamW(model.parameters())
    done = 0
    if asked.resume:
        done = torch.load(asked.resume, weights_only=True)["step"]
    workers = {}
    if asked.workers:
        workers = {
            "prefetch_factor": asked.prefetch,
            "multiprocessing_context": asked.start_method,
            "persistent_workers": True,
        }
    loader = torch.utils.data.DataLoader(
        data, batch_size=asked.batch_size, shuffle=False, num_workers=asked.workers, **workers
    )
    batches = iter(loader)
    began, timed = None, 0
    while done < asked.steps or (began and time.perf_counter() - began < asked.seconds):
        for _ in range(asked.accumulate):
            batch = next(batches).to(device)
            loss = model(batch).square().mean() / asked.accumulate
            loss.backward()
            card.launch(asked.batch_size)
        card.wait()
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if began is None and done >= 2:
            began = time.perf_counter()
        elif began is not None:
            timed += asked.batch_size * asked.accumulate
        if done % 5 == 0:
            torch.save({"step": done}, "last.part")
            pathlib.Path("last.part").replace("last.pt")
    rate = timed / max(time.perf_counter() - began, 1e-9) if began else 0.0
    print(f"done after {done} steps, {rate:.1f} samples/s", flush=True)
    if asked.report:
        line = {"samples_per_second": rate, "workers": asked.workers, "batch_size": asked.batch_size}
        with pathlib.Path(asked.report).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
