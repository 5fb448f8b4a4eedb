"""The loader; public as `brimful.data.Loader`."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from brimful import _data_arguments as given
from brimful import _native
from brimful._dataset import Dataset
from brimful._errors import InputError
from brimful._mapped import mapped
from brimful._pressure import RunPressure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Loader", "Statistics"]

_STATE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a loader so far, and where the time was spent."""

    batches: int
    samples: int
    skipped: int
    waited_seconds: float
    worked_seconds: float
    idle_seconds: float
    #: Seconds that threads spent in each stage, such as "read" or "resize image", summed over all threads.
    #: Empty if samples are read directly into the batch: then reading is the only stage.
    stages: dict[str, float]
    #: Why the first twenty skipped samples were skipped.
    skipped_samples: tuple[str, ...] = ()


class Loader:
    """Iterates over batches of a dataset, prefetched by native threads within a memory budget.

    The order depends only on the seed and the epoch. Every loop that returns a batch is a new epoch.
    `state_dict` stores the position; a loader that loads it continues there, even with another number of
    threads or ranks or another batch size.
    """

    def __init__(  # noqa: PLR0913
        self,
        dataset: Dataset,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        memory: int | str = "512MiB",
        threads: int | None = None,
        prefetch: int = 4,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        on_error: str = "raise",
        output: str | None = None,
        pin_memory: bool = False,
    ) -> None:
        """Create a loader, and check its arguments.

        Args:
            dataset: A dataset opened with a function of `brimful.data`.
            batch_size: Samples per batch, on each rank.
            shuffle: Shuffle the samples in every epoch.
            seed: Seed of the order and of random ops.
            memory: Memory budget: a number of bytes, or a string such as "512MiB". Returned batches do not
                count.
            threads: Number of threads. By default one per usable CPU; two per CPU if data is read from a disk
                past the page cache, and at least 32 for an object store, because they wait. Fewer if the
                memory budget is too small for them.
            prefetch: Maximum number of prefetched batches, if the memory budget allows.
            rank: Rank of this process.
            world_size: Number of processes that train together; each gets its own part of every step, and as
                many batches as the others. The exception is `batch_size=1`: ranks can then differ by one
                batch, for which DDP waits forever; see `drop_last`.
            drop_last: Drop the samples at the end that do not fill a batch on every rank.
            on_error: "raise", or "skip" to skip and count samples that cannot be read.
            output: "torch" or "numpy"; by default torch if it is installed.
            pin_memory: Return batches in pinned memory, for a faster copy to a GPU.
        """
        if not isinstance(dataset, Dataset):
            raise InputError(
                f"expected a dataset of `brimful.data`, found {type(dataset).__name__}",
                [
                    "open files with `hdf5`, `arrow`, `npy`, `raw`, `tokens`, `folder` or `tar`",
                    "for your own Dataset class, use torch's DataLoader with `brimful.share`",
                ],
            )
        self._step_samples = given.whole("batch_size", batch_size, least=1) * given.whole(
            "world_size", world_size, least=1
        )
        fewest = self._step_samples if drop_last else world_size
        if len(dataset) < fewest:
            raise InputError(
                f"expected at least {fewest} samples, so that every rank gets one, found {dataset!r}"
            )
        if on_error not in {"raise", "skip"}:
            raise InputError(f'expected `on_error` to be "raise" or "skip", found {on_error!r}')
        self.dataset = dataset
        self.batch_size = batch_size
        self.seed = given.whole("seed", seed)
        self.drop_last = drop_last
        self.epoch = 0
        self._shuffle = shuffle
        self._position = 0
        self._is_fresh = True
        self._loaded_end: int | None = None
        self._pin_memory = pin_memory and _can_pin(output)
        self._array = _maker(output)
        self._names = list(dataset.fields)
        self._running: _native.Epoch | None = None
        self._run_pressure = RunPressure()
        self._pressure = 0.0
        self._native = _native.Loader(
            dataset._native,  # noqa: SLF001
            batch_size=batch_size,
            shuffle=shuffle,
            seed=self.seed,
            memory=given.byte_count("memory", memory),
            threads=None if threads is None else given.whole("threads", threads, least=1),
            prefetch=given.whole("prefetch", prefetch),
            rank=given.whole("rank", rank),
            world_size=world_size,
            drop_last=drop_last,
            skip_errors=on_error == "skip",
        )

    def __len__(self) -> int:
        """Return the number of batches per epoch on this rank."""
        return self._native.batches(0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Start the next epoch, or continue from a loaded state."""
        # Nothing happens before the first batch is asked for: frameworks ask for an iterator more than once,
        # and call `set_epoch` afterwards.
        if not self._is_fresh:
            self._begin(self.epoch + 1)
        if self._running is not None:
            self._running.close()
        self._heed_pressure()
        epoch = self.epoch
        running = self._running = self._native.epoch(epoch, self._position)
        batches = self._tensors(running)
        for function in self.dataset._functions:  # noqa: SLF001
            batches = mapped(batches, function, self.threads)
        try:
            for batch, position in batches:
                self._begin(epoch, position)
                self._is_fresh = False
                yield batch
            self._check_runs(running)
            self._begin(epoch + 1)
        finally:
            running.close()

    def _tensors(self, running: _native.Epoch) -> Iterator[tuple[dict[str, Any], int]]:
        """Batches as tensors or arrays, each with the position of the epoch after it."""
        while (found := running.next()) is not None:
            self._check_runs(running)
            self._heed_pressure()
            arrays, position = found
            if len(arrays[0]) == 0:
                self._pass_over_empty()
                continue
            batch = {name: self._array(one) for name, one in zip(self._names, arrays, strict=True)}
            if self._pin_memory:
                batch = {name: one.pin_memory() for name, one in batch.items()}
            yield batch, position

    def _heed_pressure(self) -> None:
        if (told := self._run_pressure.news()) is not None:
            self._native.set_pressure(max(told, self._pressure))

    def _check_runs(self, running: _native.Epoch) -> None:
        if running is not self._running:
            raise InputError(
                "a second loop over this loader was started, which ended this one",
                ["create a second `Loader` for the inner loop"],
            )

    def _pass_over_empty(self) -> None:
        # The mean over no sample is not a number, and would make all weights so.
        if self._step_samples > self.batch_size:
            raise InputError(
                "every sample of this batch was skipped, because none could be read",
                ["the other ranks wait for a batch: repair the data, or increase `batch_size`"],
            )

    def _begin(self, epoch: int, position: int = 0) -> None:
        self.epoch, self._position, self._is_fresh, self._loaded_end = epoch, position, True, None

    def _is_over(self, position: int) -> bool:
        left = self._native.samples - position
        return left == 0 or (self.drop_last and left < self._step_samples)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop, like `DistributedSampler.set_epoch`.

        If a state of this epoch was loaded, the loop continues from it; a finished epoch has no batches.
        """
        epoch = given.whole("epoch", epoch)
        if self._loaded_end == epoch:
            self._begin(epoch, self._native.samples)
        elif not (self._is_fresh and epoch == self.epoch):
            self._begin(epoch)

    def state_dict(self) -> dict[str, int | bool]:
        """Return the position after the last returned batch."""
        samples = self._native.samples
        return {
            "version": _STATE_VERSION,
            "epoch": self.epoch,
            "position": samples if self._is_over(self._position) else self._position,
            "seed": self.seed,
            "shuffle": self._shuffle,
            "samples": samples,
        }

    def load_state_dict(self, state: Mapping[str, int | bool]) -> None:
        """Continue from a state: the next loop returns the remaining samples of its epoch.

        If none remain, the next loop is the next epoch.
        """
        if not isinstance(state, Mapping):
            raise InputError(f"expected a dict from `state_dict()`, found {type(state).__name__}")
        own = self.state_dict()
        for name in ("version", "samples", "seed", "shuffle"):
            if state.get(name) != own[name]:
                raise InputError(
                    f"expected a state with {name} {own[name]}, found {state.get(name)}",
                    ["only `threads`, `rank`, `world_size` and `batch_size` may differ"],
                )
        epoch, position = (given.whole(name, state.get(name, -1)) for name in ("epoch", "position"))
        samples = self._native.samples
        if position > samples:
            raise InputError(f"expected a position up to {samples}, found {position}")
        if position == samples:
            self._begin(epoch + 1)
            self._loaded_end = epoch
        else:
            self._begin(epoch, position)

    def __reduce__(self) -> NoReturn:
        """Raise an error: a loader cannot be pickled or copied."""
        raise InputError(
            "brimful.data loaders cannot be pickled: they hold threads and open files",
            [
                "create it in the process that uses it, with its `rank` and `world_size`",
                "to save its position, store `loader.state_dict()` in the checkpoint",
            ],
        )

    @property
    def sampler(self) -> Loader:
        """The loader itself, for frameworks that call `sampler.set_epoch`."""
        return self

    @property
    def batch_sampler(self) -> Loader:
        """The loader itself, for frameworks that read `batch_size` and `sampler` here."""
        return self

    @property
    def position(self) -> int:
        """Number of samples of the epoch that were returned, over all ranks."""
        return self._position

    @property
    def held_bytes(self) -> int:
        """Bytes that the loader holds now, without returned batches."""
        return self._native.held_bytes

    @property
    def progress(self) -> float:
        """Fraction of the epoch that was returned, from 0 to 1."""
        samples = self._native.samples
        return self._position / samples if samples else math.nan

    @property
    def statistics(self) -> Statistics:
        """Statistics so far, and where the time was spent."""
        batches, samples, skipped, waited, worked, idle, stages = self._native.statistics
        why = tuple(self._native.skipped)
        return Statistics(batches, samples, skipped, waited, worked, idle, dict(stages), why)

    @property
    def threads(self) -> int:
        """Number of threads."""
        return self._native.budget[0]

    def set_pressure(self, pressure: float) -> None:
        """Set the memory pressure, from 0 to 1: higher pressure reduces prefetching, down to one batch.

        Under `brimful run`, the loader also reads the pressure that it reports, and uses the higher value.
        """
        self._pressure = pressure
        self._native.set_pressure(pressure)

    def __repr__(self) -> str:
        """Return one line for a prompt."""
        threads, n_scratch, batches, batch = self._native.budget
        noun = "scratch buffer" if n_scratch == 1 else "scratch buffers"
        shared = f" with {n_scratch} {noun}" if n_scratch < threads else ""
        return (
            f"Loader({len(self)} batches of {self.batch_size}, {threads} threads{shared}, "
            f"up to {batches} batches of {_native.size_text(batch)} ahead)"
        )


def _can_pin(output: str | None) -> bool:
    """Whether there is a GPU to pin memory for; torch's DataLoader warns in the same case."""
    if output == "numpy":
        raise InputError('expected `output="torch"` with `pin_memory`, found "numpy"')
    torch: Any = importlib.import_module("torch")
    found = torch.accelerator if hasattr(torch, "accelerator") else torch.cuda
    is_there = bool(found.is_available())
    if not is_there:
        warnings.warn("`pin_memory` has no effect: torch sees no GPU", stacklevel=3)
    return is_there


def _maker(output: str | None) -> Callable[[_native.BatchArray], Any]:
    """Return how a field is converted: by torch, else by NumPy, else not at all."""
    if output not in {None, "torch", "numpy"}:
        raise InputError(f'expected `output` to be "torch" or "numpy", found {output!r}')
    for name, function in (("torch", "from_dlpack"), ("numpy", "asarray")):
        if output in {None, name}:
            try:
                maker: Callable[[_native.BatchArray], Any] = getattr(importlib.import_module(name), function)
            except ImportError as error:
                if output is not None:
                    raise InputError(
                        f'`output="{name}"` requires {name}, which cannot be imported ({error})',
                        [f"install {name}", "omit `output` to use torch if it is installed, else NumPy"],
                    ) from error
            else:
                return maker
    return lambda array: array
