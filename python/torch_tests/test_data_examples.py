"""The example projects with `brimful.data` against their naive form: the same batches; back after a kill."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import brimful.data as bd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"


def module_of(project: str, name: str) -> Any:  # noqa: ANN401
    """Return a script as a module; torch may see the phantom, which computes nothing."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / project / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.DEVICE = "cpu"
    return module


def run(module: ModuleType, *arguments: object) -> None:
    """Run a script with these arguments."""
    before, sys.argv = sys.argv, [str(module.__file__), *map(str, arguments)]
    try:
        module.main()
    finally:
        sys.argv = before


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models this small wait for each other's threads, on a busy machine for seconds."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def nyu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("h5py", reason="h5py is not installed")
    folder = tmp_path_factory.mktemp("nyu")
    data = folder / "nyu.h5"
    run(module_of("nyu-depth", "make_data"), "--samples", 12, "--held-out", 4, "--output", data)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    maker = module_of("wikitext-sparse", "make_data")
    maker.BLOCK = 64
    run(maker, "--megabytes", 1, "--words", 500, "--output", folder / "whole.txt")
    with (folder / "whole.txt").open() as whole, (folder / "corpus.txt").open("w") as file:
        # The last line has no end, as in many a file.
        file.write("".join(next(whole) for _ in range(200)).rstrip("\n"))
    return folder


@pytest.fixture(scope="module")
def meshes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("meshes")
    maker = module_of("modelnet-voxel", "make_data")
    run(maker, "--meshes", 9, "--test-meshes", 3, "--output", folder / "meshes")
    return folder


def field(loader: bd.Loader, name: str) -> torch.Tensor:
    """Return a field of all samples."""
    return torch.cat([batch[name] for batch in loader])


def test_images_and_depths_are_those_of_the_naive_script(nyu: Path) -> None:
    naive = module_of("nyu-depth", "train")
    ours = module_of("nyu-depth", "train_brimful")
    dataset = naive.DepthImages(nyu / "nyu.h5", 64, 0)
    images, depths = zip(*(dataset[None, index] for index in range(len(dataset))), strict=True)
    loader = bd.Loader(ours.depth_images(nyu / "nyu.h5", 64), batch_size=5)
    image, depth = field(loader, "image"), field(loader, "depth")
    levels = (image - torch.stack(images)).abs().max() * 255
    assert levels <= 1
    torch.testing.assert_close(depth[:, None].log(), torch.stack(depths), rtol=0, atol=1e-4)
    model = naive.DepthNet()
    theirs = naive.loss_sum(model, [torch.stack(images), torch.stack(depths)], "fp32")
    torch.testing.assert_close(
        ours.loss_sum(model, {"image": image, "depth": depth}, "fp32"), theirs, rtol=1e-3, atol=0
    )


def test_images_are_flipped_with_their_depths(nyu: Path) -> None:
    ours = module_of("nyu-depth", "train_brimful")
    (batch,) = bd.Loader(ours.depth_images(nyu / "nyu.h5", 32), batch_size=12)
    before = {name: part.clone() for name, part in batch.items()}
    ours.flip_some(batch, seed=0, epoch=0, end=12)
    turned = [not torch.equal(batch["depth"][row], before["depth"][row]) for row in range(12)]
    assert 0 < sum(turned) < 12
    for name, part in batch.items():
        for row, is_turned in enumerate(turned):
            assert torch.equal(part[row], before[name][row].flip(-1) if is_turned else before[name][row])


def test_tokens_are_those_of_the_naive_script(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naive = module_of("wikitext-sparse", "train")
    ours = module_of("wikitext-sparse", "train_brimful")
    monkeypatch.setattr(
        sys,
        "argv",
        ["train", "--data", str(corpus / "corpus.txt"), "--vocabulary", "300", "--sequence-length", "16"],
    )
    expected = torch.tensor(naive.Corpus(naive.parse_arguments()).examples)
    arguments = ours.parse_arguments()
    paths = ours.write_examples(arguments)
    rows = [field(ours.make_loader(path, 7, arguments), "tokens") for path in paths]
    assert torch.equal(torch.cat(rows), expected)
    assert len(rows[1]) == min(128, len(expected) // 4)
    shuffled = field(ours.make_loader(paths[0], 7, arguments, shuffle=True), "tokens")
    assert sorted(shuffled.tolist()) == sorted(rows[0].tolist())
    assert not torch.equal(shuffled, rows[0])
    assert ours.write_examples(arguments) == paths


def test_voxels_and_their_noise_are_those_of_the_naive_script(meshes: Path) -> None:
    naive = module_of("modelnet-voxel", "train")
    ours = module_of("modelnet-voxel", "train_brimful")
    dataset = naive.Voxels(meshes / "meshes", resolution=24, rotations=1, seed=3)
    dataset.epoch = -1
    loader = bd.Loader(ours.voxels(meshes / "meshes", "train", 24), batch_size=4)
    at = 0
    for batch in loader:
        noisy = ours.with_noise(batch["mesh"], 3, -1, loader.position, turned=False)
        for row in range(len(batch["mesh"])):
            assert torch.equal(batch["mesh"][row], torch.from_numpy(dataset.grids[at]))
            for part, expected in zip(noisy, dataset[at], strict=True):
                assert torch.equal(part[row], expected)
            at += 1
    assert at == len(dataset) == 9


class KilledError(Exception):
    """Stands for a kill."""


def losses(folder: Path) -> dict[int, float]:
    """Return the loss of every step; of steps that were done twice the later one."""
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines}


def comes_back(project: str, *arguments: object, folder: Path, batch_size: int) -> None:
    """Check that a run that is cut off goes on with the losses of one that is not."""
    # THEN the losses must be these.
    module = module_of(project, "train_brimful")
    shared = (*arguments, "--save-every", 2)
    run(module, *shared, "--output", folder / "whole", "--batch-size", batch_size)
    expected = losses(folder / "whole")

    # GIVEN a run that is killed after its fifth step, and has saved after its fourth.
    def log_and_die(*told: object) -> None:
        log(*told)
        if len(losses(folder / "cut")) == 5:
            raise KilledError

    log, module.log = module.log, log_and_die
    with pytest.raises(KilledError):
        run(module, *shared, "--output", folder / "cut", "--batch-size", batch_size)
    # WHEN it goes on, with another split of the batch.
    module.log = log
    split = ("--batch-size", batch_size // 2, "--accumulate", 2, "--memory", "300MiB")
    run(module, *shared, "--output", folder / "cut", *split, "--resume", folder / "cut/last.pt")
    found = losses(folder / "cut")
    assert sorted(found) == sorted(expected)
    assert len(expected) > 6
    for step, loss in expected.items():
        assert found[step] == pytest.approx(loss, rel=1e-5), step


def test_depth_comes_back(nyu: Path, tmp_path: Path) -> None:
    data = ("--data", nyu / "nyu.h5", "--held-out", nyu / "nyu-held-out.h5", "--resolution", 32)
    # Three steps an epoch: saved in the middle of one.
    comes_back("nyu-depth", *data, "--epochs", 3, folder=tmp_path, batch_size=4)


def test_language_model_comes_back(corpus: Path, tmp_path: Path) -> None:
    data = ("--data", corpus / "corpus.txt", "--vocabulary", 300, "--sequence-length", 16, "--model", "tiny")
    comes_back("wikitext-sparse", *data, "--negatives", 32, "--examples", 60, folder=tmp_path, batch_size=6)


def test_diffusion_comes_back(meshes: Path, tmp_path: Path) -> None:
    data = ("--data", meshes / "meshes", "--resolution", 16, "--model", "tiny")
    # An epoch of nine meshes ends with a batch of one.
    comes_back("modelnet-voxel", *data, "--epochs", 3, folder=tmp_path, batch_size=4)
