"""Train a small diffusion model of voxel grids of meshes: `train.py` with `brimful.data` for its data."""

import argparse
import json
import math
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import default_collate

import brimful.data as bd

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MODELS = {"full": 32, "small": 16, "tiny": 8}  # channels of the first level


class Voxels:
    """Every mesh as a voxel grid, made and turned by threads when it is needed; noise is added to a batch."""

    def __init__(self, folder: Path, resolution: int, rotations: int, seed: int) -> None:
        meshes = bd.folder(folder, "off", split="train").numbered()
        grids = meshes.voxelize("mesh", resolution, channel=True, rotations=rotations)
        self.samples = grids.map(self.with_noise)
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.samples)

    def with_noise(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return noisy grids, their times and the noise."""
        return default_collate([*map(self.noisy, batch["mesh"], batch["number"].tolist())])

    def noisy(self, grid: torch.Tensor, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the same of one sample."""
        grid = 2 * grid - 1
        random = chance(self.seed, self.epoch, index)
        time = torch.rand(1, generator=random)
        noise = torch.randn(grid.shape, generator=random)
        angle = time * math.pi / 2
        return angle.cos() * grid + angle.sin() * noise, time, noise


def chance(seed: int, epoch: int, index: int) -> torch.Generator:
    """Return the source of randomness of one sample: the same in every worker, batch and resumed run."""
    return torch.Generator().manual_seed((seed * 1_000_003 + epoch) * 1_000_003 + index)


class Block(nn.Module):
    """A convolution that knows the time; normalized over groups, so that no sample sees another one."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(inputs, outputs, 3, stride=stride, padding=1)
        self.norm = nn.GroupNorm(4, outputs)
        self.time = nn.Linear(16, outputs)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.convolution(x)) + self.time(time)[:, :, None, None, None]
        return functional.silu(x)


class UNet(nn.Module):
    """Tells the noise in a grid; works at half the resolution and below."""

    def __init__(self, width: int, *, checkpointing: bool) -> None:
        super().__init__()
        self.checkpointing = checkpointing
        self.down1 = Block(1, width, stride=2)
        self.down2 = Block(width, 2 * width, stride=2)
        self.down3 = Block(2 * width, 4 * width, stride=2)
        self.middle = Block(4 * width, 4 * width)
        self.up2 = Block(6 * width, 2 * width)
        self.up1 = Block(3 * width, width)
        self.out = nn.ConvTranspose3d(width, 1, 4, stride=2, padding=1)

    def forward(self, grids: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        waves = times * 2 ** torch.arange(8, device=times.device)
        time = torch.cat((waves.sin(), waves.cos()), dim=1)
        first = self.call(self.down1, grids, time)
        second = self.call(self.down2, first, time)
        x = self.call(self.middle, self.call(self.down3, second, time), time)
        x = self.call(self.up2, torch.cat((enlarge(x, second), second), dim=1), time)
        x = self.call(self.up1, torch.cat((enlarge(x, first), first), dim=1), time)
        return self.out(x)

    def call(self, block: Block, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Run a block, and keep its activations only if they will not be computed again."""
        if self.checkpointing and self.training:
            return checkpoint(block, x, time, use_reentrant=False)
        return block(x, time)


def enlarge(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `x` at the size of another tensor."""
    return functional.interpolate(x, like.shape[2:], mode="nearest")


class Run:
    """What a checkpoint holds: the model, all that trains it, and how far it is."""

    PARTS = ("model", "optimizer", "scheduler", "scaler", "loader")
    VALUES = ("epoch", "samples", "step", "size")

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
        self.size = arguments.model
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
        values = {name: getattr(self, name) for name in self.VALUES}
        randomness = {"random": torch.get_rng_state(), "cuda_random": torch.cuda.get_rng_state_all()}
        temporary = self.path.with_suffix(".tmp")
        torch.save(parts | values | randomness, temporary)
        temporary.replace(self.path)

    def resume(self, path: Path) -> None:
        """Go on where the checkpoint was written."""
        saved = torch.load(path, map_location="cpu", weights_only=True)
        if saved["size"] != self.size:
            raise SystemExit(f"{path} is of the {saved['size']} model, not of the {self.size} one")
        for name in self.PARTS:
            if saved[name]:  # a scaler that was not in use has nothing to say
                getattr(self, name).load_state_dict(saved[name])
        for name in self.VALUES:
            setattr(self, name, saved[name])
        torch.set_rng_state(saved["random"])
        if torch.cuda.device_count() == len(saved["cuda_random"]):
            torch.cuda.set_rng_state_all(saved["cuda_random"])
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
    """Return the squared error of the noise, a mean over voxels, a sum over samples."""
    noisy, times, noise = (part.to(DEVICE, non_blocking=True) for part in batch)
    with torch.autocast(DEVICE, PRECISIONS[precision], enabled=precision != "fp32"):
        predicted = model(noisy, times)
    return (predicted.float() - noise).square().mean(dim=(1, 2, 3, 4)).sum()


def train_epoch(run: Run, dataset: Voxels, n_train: int, arguments: argparse.Namespace) -> None:
    """Train on what is left of the epoch."""
    run.loader.set_epoch(run.epoch)
    dataset.epoch = run.epoch
    effective_batch = arguments.batch_size * arguments.accumulate
    n_done, loss = 0, 0.0
    for batch in run.loader:
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
def evaluate(run: Run, dataset: Voxels, n_train: int, arguments: argparse.Namespace) -> None:
    """Tell the loss on the samples that are held out."""
    dataset.epoch = -1  # the same noise in each evaluation
    held_out = dataset.samples[n_train:]
    run.model.eval()
    loader = make_loader(held_out, arguments.eval_batch_size, arguments, shuffle=False)
    loss = sum(loss_sum(run.model, batch, arguments.precision).item() for batch in loader) / len(held_out)
    run.model.train()
    print(f"epoch {run.epoch} step {run.step} evaluation {loss:.9f}", flush=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default="meshes", help="a folder of OFF files")
    parser.add_argument("--output", type=Path, default="outputs")
    parser.add_argument(
        "--resolution", type=int, default=32, help="voxels along one side, eight times any number"
    )
    parser.add_argument("--rotations", type=int, default=12, help="ways to turn a mesh")
    parser.add_argument("--model", choices=MODELS, default="full")
    parser.add_argument("--activation-checkpointing", action="store_true")
    parser.add_argument("--batch-size", type=int, default=16, help="samples at a time")
    parser.add_argument("--accumulate", type=int, default=1, help="batches for one step of the optimizer")
    parser.add_argument("--eval-batch-size", type=int, default=16)
    parser.add_argument("--memory", default="512MiB", help="all that a loader may hold")
    parser.add_argument("--pin-memory", action=argparse.BooleanOptionalAction, default=DEVICE == "cuda")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--epochs", type=int, default=12)
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
    dataset = Voxels(arguments.data, arguments.resolution, arguments.rotations, arguments.seed)
    n_train = len(dataset) - min(6, len(dataset) // 4)
    steps = arguments.epochs * math.ceil(n_train / (arguments.batch_size * arguments.accumulate))
    arguments.max_steps = min(steps, arguments.max_steps or steps)
    model = UNet(MODELS[arguments.model], checkpointing=arguments.activation_checkpointing)
    training = make_loader(dataset.samples[:n_train], arguments.batch_size, arguments, shuffle=True)
    run = Run(model.to(DEVICE), training, arguments, arguments.max_steps)
    if arguments.resume:
        run.resume(arguments.resume)
    while run.epoch < arguments.epochs:
        if run.step < arguments.max_steps and run.samples < n_train:
            train_epoch(run, dataset, n_train, arguments)
            run.save()
        evaluate(run, dataset, n_train, arguments)
        if run.step >= arguments.max_steps:
            break
        run.epoch, run.samples = run.epoch + 1, 0
    print(f"done after {run.step} steps", flush=True)


if __name__ == "__main__":
    main()
