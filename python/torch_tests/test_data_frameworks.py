"""`brimful.data.Loader` in the loops of frameworks: what they ask of it, and coming back to the batch."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import brimful
import brimful.data as bd

if TYPE_CHECKING:
    from types import ModuleType

SAMPLES, BATCH, EPOCHS = 40, 8, 3
STEPS = SAMPLES // BATCH

# Frameworks warn of much that is none of our business, such as few batches or an old name of their own.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "numbers.npy"
    np.save(path, np.arange(SAMPLES, dtype=np.int64))
    return path


def loader_of(path: Path, **settings: Any) -> bd.Loader:  # noqa: ANN401
    named = {"batch_size": BATCH, "shuffle": True, "seed": 4, "memory": "1MiB", **settings}
    return bd.Loader(bd.npy({"number": path}), **named)


def uninterrupted(path: Path) -> list[list[int]]:
    """The batches of all epochs."""
    loader = loader_of(path)
    return [batch["number"].tolist() for _ in range(EPOCHS) for batch in loader]


def test_a_loaded_state_outlives_set_epoch(numbers: Path) -> None:
    """As a script for DDP has it: load, then `set_epoch` at the beginning of every epoch."""
    whole = uninterrupted(numbers)
    for done in range(1, EPOCHS * STEPS):
        loader = loader_of(numbers)
        for step in range(done):
            if step % STEPS == 0:
                batches = iter(loader)
            next(batches)
        # Saved by a script that counts epochs itself, inside of its loop: the last batch has not ended that.
        state, epoch = loader.state_dict(), (done - 1) // STEPS
        loader = loader_of(numbers)
        loader.load_state_dict(state)
        seen = []
        for number in range(epoch, EPOCHS):
            loader.set_epoch(number)
            seen += [batch["number"].tolist() for batch in loader]
        assert seen == whole[done:], done
        loader = loader_of(numbers)
        loader.load_state_dict(state)
        seen = []
        while loader.epoch < EPOCHS:
            seen += [batch["number"].tolist() for batch in loader]
        assert seen == whole[done:], done


def test_an_iterator_that_nobody_uses_is_no_epoch(numbers: Path) -> None:
    loader = loader_of(numbers)
    iter(loader)
    iter(loader)
    loader.set_epoch(0)
    assert [batch["number"].tolist() for batch in loader] == uninterrupted(numbers)[:STEPS]


def lightning_module() -> tuple[ModuleType, Any]:
    lightning = pytest.importorskip("lightning", reason="Lightning is not installed")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen = []

        def training_step(self, batch: dict[str, torch.Tensor], _number: int) -> torch.Tensor:
            self.seen.append(batch["number"].tolist())
            return self.layer(batch["number"].float()[:, None]).mean()

        def validation_step(self, _batch: dict[str, torch.Tensor], _number: int) -> None:
            pass

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.0)

    return lightning, Module()


def fit_with_lightning(
    numbers: Path, folder: Path, *, checkpoint: Path | None = None, validate: bool = False, **saved: int
) -> list[list[int]]:
    lightning, module = lightning_module()
    callbacks = []
    if saved:
        callbacks = [
            lightning.pytorch.callbacks.ModelCheckpoint(
                dirpath=folder, save_top_k=-1, filename="{step}", **saved
            )
        ]
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=bool(saved),
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        default_root_dir=folder,
    )
    evaluation = [loader_of(numbers, shuffle=False)] if validate else []
    trainer.fit(module, loader_of(numbers), *evaluation, ckpt_path=checkpoint)
    return module.seen


@pytest.mark.parametrize("validate", [False, True])
def test_lightning_goes_on_from_the_batch_of_its_checkpoint(
    numbers: Path,
    tmp_path: Path,
    validate: bool,  # noqa: FBT001
) -> None:
    whole = uninterrupted(numbers)
    assert fit_with_lightning(numbers, tmp_path, validate=validate, every_n_train_steps=1) == whole
    for step in (3, STEPS, STEPS + 2):
        path = tmp_path / f"step={step}.ckpt"
        assert fit_with_lightning(numbers, tmp_path, validate=validate, checkpoint=path) == whole[step:]


def test_lightning_goes_on_from_the_end_of_an_epoch(numbers: Path, tmp_path: Path) -> None:
    """Lightning does not load the state of a loader then; `set_epoch` is what it calls."""
    fit_with_lightning(numbers, tmp_path, every_n_epochs=1)
    path = tmp_path / f"step={STEPS}.ckpt"
    assert fit_with_lightning(numbers, tmp_path, checkpoint=path) == uninterrupted(numbers)[STEPS:]


def test_accelerate_hands_it_back_and_keeps_its_state(numbers: Path, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="Accelerate is not installed")
    accelerator = accelerate.Accelerator(cpu=True)
    loader = loader_of(numbers)
    layer = torch.nn.Linear(1, 1)
    layer, optimizer, prepared = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.0), loader)
    assert prepared is loader
    accelerator.register_for_checkpointing(loader)
    for step, batch in enumerate(loader, start=1):
        with accelerator.accumulate(layer):
            accelerator.backward(layer(batch["number"].float()[:, None]).mean())
            optimizer.step()
            optimizer.zero_grad()
        if step == 2:
            accelerator.save_state(tmp_path / "state")
    rest = [batch["number"].tolist() for batch in loader]
    accelerator.load_state(tmp_path / "state")
    seen = [batch["number"].tolist() for _ in range(2) for batch in loader]
    assert seen == uninterrupted(numbers)[2 : 2 * STEPS]
    assert seen[-STEPS:] == rest


def hugging_face_trainer(numbers: Path, folder: Path, **settings: Any) -> tuple[Any, bd.Loader]:  # noqa: ANN401
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="Accelerate is not installed")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
            self.seen = []

        def forward(self, number: torch.Tensor) -> dict[str, torch.Tensor]:
            self.seen.append(number.tolist())
            return {"loss": self.layer(number.float()[:, None]).mean()}

    class KeepsItsPlace(transformers.TrainerCallback):
        """Writes the state of the loader beside every checkpoint."""

        def __init__(self, loader: bd.Loader) -> None:
            self.loader = loader

        def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:  # noqa: ANN401
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            (folder / "loader.json").write_text(json.dumps(self.loader.state_dict()))

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self) -> bd.Loader:
            return loader

    arguments = transformers.TrainingArguments(
        output_dir=folder,
        num_train_epochs=EPOCHS,
        use_cpu=True,
        report_to=[],
        logging_strategy="no",
        disable_tqdm=True,
        ignore_data_skip=True,
        **{"save_strategy": "no", **settings},
    )
    loader = loader_of(numbers)
    return Trainer(Model(), arguments, callbacks=[KeepsItsPlace(loader)]), loader


def test_the_trainer_of_hugging_face_goes_on_from_the_batch_of_its_checkpoint(
    numbers: Path, tmp_path: Path
) -> None:
    trainer, _ = hugging_face_trainer(numbers, tmp_path, save_strategy="steps", save_steps=1)
    trainer.train()
    whole = uninterrupted(numbers)
    assert trainer.model.seen == whole
    for step in (3, STEPS, STEPS + 2):
        trainer, loader = hugging_face_trainer(numbers, tmp_path)
        checkpoint = tmp_path / f"checkpoint-{step}"
        loader.load_state_dict(json.loads((checkpoint / "loader.json").read_text()))
        trainer.train(resume_from_checkpoint=str(checkpoint))
        assert trainer.model.seen == whole[step:], step
        assert trainer.state.global_step == len(whole)


RANK = """
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import brimful.data as bd

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
loader = bd.Loader(
    bd.npy({"number": sys.argv[1]}), batch_size=4, shuffle=True, seed=4, memory="1MiB",
    rank=rank, world_size=world_size,
)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
seen = []
for epoch in range(2):
    loader.set_epoch(epoch)
    for batch in loader:
        seen += batch["number"].tolist()
        model(batch["number"].float()[:, None]).mean().backward()
print(seen, flush=True)
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("children_with_torch")
def test_ranks_of_ddp_share_every_epoch(tmp_path: Path) -> None:
    path = tmp_path / "numbers.npy"
    np.save(path, np.arange(SAMPLES + 1, dtype=np.int64))
    script = tmp_path / "train.py"
    script.write_text(RANK)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, script, path],
            env={
                **os.environ,
                "PYTHONPATH": ":".join(sys.path),
                "CUDA_VISIBLE_DEVICES": "",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        # By themselves, not by all_gather_object: a thread of gloo lets go of its tensors later, and where
        # the interpreter has ended by then, that ends the process with SIGABRT (torch 2.13).
        said = [rank.communicate(timeout=90)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    first, second = map(json.loads, said)
    # Steps of 8 leave one sample; the step before leaves another one, so that both have as many batches.
    assert (len(first), len(second)) == (2 * (SAMPLES // 2 + 1), SAMPLES)
    for epoch in range(2):
        parts = [seen[epoch * (len(seen) // 2) :][: len(seen) // 2] for seen in (first, second)]
        assert sorted(parts[0] + parts[1]) == list(range(SAMPLES + 1))
    # The steps are those of one process with twice the batch.
    alone = next(iter(loader_of(path, batch_size=8)))["number"].tolist()
    assert first[:4] + second[:4] == alone


def test_too_few_samples_for_all_ranks_are_told_before_the_first_step(numbers: Path) -> None:
    with pytest.raises(brimful.InputError, match="expected at least 48 samples, so that every rank gets one"):
        loader_of(numbers, world_size=6, drop_last=True)


def test_a_loader_is_not_sent_to_other_processes(numbers: Path) -> None:
    with pytest.raises(brimful.InputError, match="create it in the process that uses it"):
        pickle.dumps(loader_of(numbers))
    with pytest.raises(TypeError, match=r"iterate over `brimful.data.Loader\(dataset\)`"):
        next(iter(torch.utils.data.DataLoader(bd.npy(numbers))))


def test_a_loop_that_another_one_has_ended_says_so(numbers: Path) -> None:
    loader = loader_of(numbers)
    outer = iter(loader)
    next(outer)
    next(iter(loader))
    with pytest.raises(brimful.InputError, match="a second loop over this loader was started"):
        next(outer)
