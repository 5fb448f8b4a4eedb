"""Train a small network to see depth in single images: `train.py` with `brimful.data` for its data."""

import argparse
import json
import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import brimful.data as bd

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def depth_images(path: Path, resolution: int) -> bd.Dataset:
    """Return images and depths, made small by threads; the file is never in memory as a whole."""
    size = (resolution, resolution * 3 // 4)
    data = bd.hdf5(path, {"image": "images", "depth": "depths"})
    return data.resize("image", size).normalize("image", mean=0, std=1).resize("depth", size)


def pairs(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images of a batch and the logarithms of their depths."""
    return batch["image"], batch["depth"][:, None].log()


class Block(nn.Sequential):
    """A convolution, normalized over groups of channels: no sample sees another one of its batch."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
            nn.GroupNorm(8, outputs),
            nn.SiLU(),
        )


class DepthNet(nn.Module):
    """Three steps down, three up, with what was seen on the way down."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down1 = Block(3, width, stride=2)
        self.down2 = Block(width, 2 * width, stride=2)
        self.down3 = Block(2 * width, 4 * width, stride=2)
        self.middle = Block(4 * width, 4 * width)
        self.up2 = Block(6 * width, 2 * width)
        self.up1 = Block(3 * width, width)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.down1(images)
        second = self.down2(first)
        x = self.middle(self.down3(second))
        x = self.up2(torch.cat((enlarge(x, second), second), dim=1))
        x = self.up1(torch.cat((enlarge(x, first), first), dim=1))
        return enlarge(self.out(x), images)


def enlarge(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `x` at the size of another tensor."""
    return functional.interpolate(x, like.shape[2:], mode="bilinear", align_corners=False)


class Run:
    """What a checkpoint holds: the model, all that trains it, and how far it is."""

    PARTS = ("model", "optimizer", "scheduler", "scaler", "loader")
    COUNTS = ("epoch", "samples", "step")

    def __init__(
        self, model: nn.Module, loader: bd.Loader, arguments: argparse.Namespace, total_steps: int
    ) -> None:
        self.model = model
        self.loader = loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * min(1, step / total_steps))
        )
        self.scaler = torch.amp.GradScaler(DEVICE, enabled=arguments.precision == "fp16")
        self.epoch = 0
        self.samples = 0  # seen in this epoch
        self.step = 0
        self.path = arguments.output / "last.pt"

    def update(self) -> None:
        """Take one step of the optimizer."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.optimizer.zero_grad()
        self.step += 1

    def save(self) -> None:
        """Write the checkpoint under another name first: a killed run leaves the old one whole."""
        parts = {name: getattr(self, name).state_dict() for name in self.PARTS}
        counts = {name: getattr(self, name) for name in self.COUNTS}
        randomness = {"random": torch.get_rng_state(), "cuda_random": torch.cuda.get_rng_state_all()}
        temporary = self.path.with_suffix(".tmp")
        torch.save(parts | counts | randomness, temporary)
        temporary.replace(self.path)

    def resume(self, path: Path) -> None:
        """Go on where the checkpoint was written."""
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        for name in self.PARTS:
            if checkpoint[name]:  # a scaler that was not in use has nothing to say
                getattr(self, name).load_state_dict(checkpoint[name])
        for name in self.COUNTS:
            setattr(self, name, checkpoint[name])
        torch.set_rng_state(checkpoint["random"])
        if torch.cuda.device_count() == len(checkpoint["cuda_random"]):
            torch.cuda.set_rng_state_all(checkpoint["cuda_random"])
        print(f"resumed at step {self.step}, epoch {self.epoch}, {self.samples} samples into it", flush=True)


def make_loader(
    dataset: bd.Dataset, batch_size: int, arguments: argparse.Namespace, *, shuffle: bool
) -> bd.Loader:
    """Return a loader over these samples, which never holds more than it is given."""
    return bd.Loader(
        dataset,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=arguments.seed,
        memory=arguments.memory,
        pin_memory=arguments.pin_memory,
    )


def loss_sum(model: nn.Module, batch: list[torch.Tensor], precision: str) -> torch.Tensor:
    """Return the squared error of the log depths, a mean over pixels, a sum over samples."""
    images, depths = (part.to(DEVICE, non_blocking=True) for part in batch)
    with torch.autocast(DEVICE, PRECISIONS[precision], enabled=precision != "fp32"):
        predicted = model(images)
    return (predicted.float() - depths).square().mean(dim=(1, 2, 3)).sum()


def train_epoch(run: Run, loader: bd.Loader, arguments: argparse.Namespace) -> None:
    """Train on what is left of the epoch."""
    loader.set_epoch(run.epoch)
    n_train = len(loader.dataset)
    effective_batch = arguments.batch_size * arguments.accumulate
    n_done, loss = 0, 0.0
    for batch in loader:
        # The last effective batch of an epoch may be smaller; its samples count the same.
        n_group = min(effective_batch, n_train - run.samples)
        part = loss_sum(run.model, batch, arguments.precision) / n_group
        run.scaler.scale(part).backward()
        n_done += len(batch[0])
        loss += part.item()
        if n_done < n_group:
            continue
        run.update()
        run.samples += n_group
        log(run, loss, run.epoch * n_train + run.samples)
        n_done, loss = 0, 0.0
        if run.step % arguments.save_every == 0:
            run.save()
        if run.step == arguments.max_steps:
            break


def log(run: Run, loss: float, samples: int) -> None:
    """Tell of one step on the terminal and in the log file."""
    print(f"step {run.step} loss {loss:.9f}", flush=True)
    with run.path.with_name("log.jsonl").open("a") as file:
        file.write(json.dumps({"step": run.step, "loss": loss, "samples": samples}) + "\n")


@torch.no_grad()
def evaluate(run: Run, loader: bd.Loader, arguments: argparse.Namespace) -> None:
    """Tell the loss on the samples that are held out."""
    run.model.eval()
    losses = [loss_sum(run.model, batch, arguments.precision).item() for batch in loader]
    loss = sum(losses) / len(loader.dataset)
    run.model.train()
    print(f"epoch {run.epoch} step {run.step} evaluation {loss:.9f}", flush=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default="nyu.h5")
    parser.add_argument("--output", type=Path, default="outputs")
    parser.add_argument("--resolution", type=int, default=128, help="height of an image in pixels")
    parser.add_argument("--batch-size", type=int, default=32, help="samples at a time")
    parser.add_argument("--accumulate", type=int, default=1, help="batches for one step of the optimizer")
    parser.add_argument("--eval-batch-size", type=int, default=32)
    parser.add_argument("--memory", default="256MiB", help="all that a loader may hold")
    parser.add_argument("--pin-memory", action=argparse.BooleanOptionalAction, default=DEVICE == "cuda")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=5, help="steps of the optimizer")
    parser.add_argument("--resume", type=Path, help="a checkpoint to go on from")
    return parser.parse_args()


def main() -> None:
    """Train, and evaluate after each epoch."""
    arguments = parse_arguments()
    arguments.output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(arguments.seed)
    dataset = depth_images(arguments.data, arguments.resolution)
    n_train = len(dataset) - min(32, len(dataset) // 4)
    steps = arguments.epochs * math.ceil(n_train / (arguments.batch_size * arguments.accumulate))
    arguments.max_steps = min(steps, arguments.max_steps or steps)
    flipped = dataset[:n_train].flip(["image", "depth"])
    training = make_loader(flipped.map(pairs), arguments.batch_size, arguments, shuffle=True)
    held_out = dataset[n_train:].map(pairs)
    evaluation = make_loader(held_out, arguments.eval_batch_size, arguments, shuffle=False)
    run = Run(DepthNet().to(DEVICE), training, arguments, arguments.max_steps)
    if arguments.resume:
        run.resume(arguments.resume)
    while run.epoch < arguments.epochs:
        if run.step < arguments.max_steps and run.samples < n_train:
            train_epoch(run, training, arguments)
            run.save()
        evaluate(run, evaluation, arguments)
        if run.step >= arguments.max_steps:
            break
        run.epoch, run.samples = run.epoch + 1, 0
    print(f"done after {run.step} steps", flush=True)


if __name__ == "__main__":
    main()
