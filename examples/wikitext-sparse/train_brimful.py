"""Train a small language model with sparse attention: `train.py` with `brimful.data` for its data."""

import argparse
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import brimful.data as bd

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
MODELS = {"tiny": (64, 2), "small": (128, 4), "medium": (512, 8)}  # width, layers
UNKNOWN, END, SPECIAL = 0, 1, 2
NEAR = 16  # words seen without a gap


class Corpus:
    """The corpus as numbers in a file, one row for each example, and none of them a Python object."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.length = arguments.sequence_length
        self.n_negatives = arguments.negatives
        self.seed = arguments.seed
        self.epoch = 0
        form = f"{arguments.vocabulary}-{self.length}-{arguments.examples or 'all'}"
        path = arguments.data.with_name(f"{arguments.data.stem}-{form}.tokens")
        if not path.exists():
            self.write(path, arguments)
        # A map of the file: pages that every process of the machine shares.
        self.examples = np.memmap(path, np.uint16, "r").reshape(-1, self.length + 1)
        rows = bd.tokens(path, self.length + 1, dtype="uint16", as_int64=True)
        self.samples = rows.numbered().map(self.with_negatives)

    def write(self, path: Path, arguments: argparse.Namespace) -> None:
        """Write the file, under another name first: what is cut off is not taken for all of it."""
        with arguments.data.open() as file:
            counts = Counter(word for line in file for word in line.split())
        common = sorted(word for word, _ in counts.most_common(arguments.vocabulary - SPECIAL))
        vocabulary = {word: number for number, word in enumerate(common)}
        n_examples = 0
        tokens: list[int] = []
        part = path.with_suffix(".part")
        with arguments.data.open() as file, part.open("wb") as output:
            for line in file:
                tokens += [vocabulary.get(word, UNKNOWN - SPECIAL) + SPECIAL for word in line.split()]
                tokens.append(END)
                while len(tokens) > self.length and n_examples != arguments.examples:
                    output.write(np.array(tokens[: self.length + 1], np.uint16).data)
                    tokens = tokens[self.length :]
                    n_examples += 1
                if n_examples == arguments.examples:
                    break
        part.rename(path)

    def __len__(self) -> int:
        return len(self.examples)

    def with_negatives(self, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return the words of a batch, and words that are wrong."""
        return [batch["tokens"], torch.stack([self.negatives(index) for index in batch["number"].tolist()])]

    def negatives(self, index: int) -> torch.Tensor:
        """Return words that are wrong for one sample."""
        random = chance(self.seed, self.epoch, index)
        rows = torch.randint(len(self.examples), (self.n_negatives,), generator=random).tolist()
        places = torch.randint(self.length, (self.n_negatives,), generator=random).tolist()
        # Words from anywhere in the corpus, so that frequent ones come often, as in word2vec.
        return torch.from_numpy(self.examples[rows, places].astype(np.int64))


def chance(seed: int, epoch: int, index: int) -> torch.Generator:
    """Return the source of randomness of one sample: the same in every worker, batch and resumed run."""
    return torch.Generator().manual_seed((seed * 1_000_003 + epoch) * 1_000_003 + index)


class Block(nn.Module):
    """Attention and a feed-forward network, each after a layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.n_heads = width // 32
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.n_heads, -1).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.norm2(x))


class SparseTransformer(nn.Module):
    """A decoder in which a word sees the few words before it, and every sixteenth one further back."""

    def __init__(self, vocabulary: int, length: int, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.words.weight, std=width**-0.5)
        nn.init.normal_(self.places.weight, std=width**-0.5)
        far = torch.arange(length)[:, None] - torch.arange(length)
        self.register_buffer("mask", (far >= 0) & ((far < NEAR) | (far % NEAR == 0)), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        length = tokens.shape[1]
        x = self.words(tokens) + self.places.weight[:length]
        for block in self.blocks:
            x = block(x, self.mask[:length, :length])
        return self.norm(x)


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
    """Return how badly the next word is told from the negatives, a mean over words, a sum over samples."""
    tokens, negatives = (part.to(DEVICE, non_blocking=True) for part in batch)
    targets = tokens[:, 1:]
    with torch.autocast(DEVICE, PRECISIONS[precision], enabled=precision != "fp32"):
        states = model(tokens[:, :-1])
        right = (states * model.words(targets)).sum(dim=2, keepdim=True)
        wrong = states @ model.words(negatives).transpose(1, 2)
    wrong = wrong.float().masked_fill(targets[:, :, None] == negatives[:, None, :], -math.inf)
    scores = torch.cat((right.float(), wrong), dim=2)
    return (scores.logsumexp(dim=2) - scores[:, :, 0]).mean(dim=1).sum()


def train_epoch(run: Run, dataset: Corpus, n_train: int, arguments: argparse.Namespace) -> None:
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
def evaluate(run: Run, dataset: Corpus, n_train: int, arguments: argparse.Namespace) -> None:
    """Tell the loss on the samples that are held out."""
    dataset.epoch = -1  # the same negatives in each evaluation
    held_out = dataset.samples[n_train:]
    run.model.eval()
    loader = make_loader(held_out, arguments.eval_batch_size, arguments, shuffle=False)
    loss = sum(loss_sum(run.model, batch, arguments.precision).item() for batch in loader) / len(held_out)
    run.model.train()
    print(f"epoch {run.epoch} step {run.step} evaluation {loss:.9f}", flush=True)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default="corpus.txt")
    parser.add_argument("--output", type=Path, default="outputs")
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--vocabulary", type=int, default=16_000, help="words that have a number")
    parser.add_argument("--sequence-length", type=int, default=64, help="words in an example")
    parser.add_argument("--negatives", type=int, default=1024, help="wrong words to tell the right one from")
    parser.add_argument("--examples", type=int, help="use so many and no more")
    parser.add_argument("--batch-size", type=int, default=32, help="samples at a time")
    parser.add_argument("--accumulate", type=int, default=1, help="batches for one step of the optimizer")
    parser.add_argument("--eval-batch-size", type=int, default=32)
    parser.add_argument("--memory", default="64MiB", help="all that a loader may hold")
    parser.add_argument("--pin-memory", action=argparse.BooleanOptionalAction, default=DEVICE == "cuda")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--epochs", type=int, default=1)
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
    dataset = Corpus(arguments)
    n_train = len(dataset) - min(128, len(dataset) // 4)
    steps = arguments.epochs * math.ceil(n_train / (arguments.batch_size * arguments.accumulate))
    arguments.max_steps = min(steps, arguments.max_steps or steps)
    model = SparseTransformer(arguments.vocabulary, arguments.sequence_length, *MODELS[arguments.model])
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
