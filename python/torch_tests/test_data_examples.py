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
    run(module_of("nyu-depth", "make_data"), "--samples", 12, "--output", data)
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
    run(maker, "--meshes", 12, "--output", folder / "meshes")
    return folder


def test_images_and_depths_are_those_of_the_naive_script(nyu: Path) -> None:
    naive = module_of("nyu-depth", "train")
    ours = module_of("nyu-depth", "train_brimful")
    dataset = naive.DepthImages(nyu / "nyu.h5", 64, 0)
    images, depths = map(torch.stack, zip(*(dataset[None, index] for index in range(12)), strict=True))
    plain = ours.depth_images(nyu / "nyu.h5", 64)
    ((image, depth),) = bd.Loader(plain.map(ours.pairs), batch_size=12)
    assert (image - images).abs().max() * 255 <= 1
    torch.testing.assert_close(depth, depths, rtol=0, atol=1e-4)
    ((flipped, flipped_depth),) = bd.Loader(plain.flip(["image", "depth"]).map(ours.pairs), batch_size=12)
    turned = [not torch.equal(flipped[row], image[row]) for row in range(12)]
    assert 0 < sum(turned) < 12
    for row, is_turned in enumerate(turned):
        assert torch.equal(flipped[row], image[row].flip(-1) if is_turned else image[row])
        assert torch.equal(flipped_depth[row], depth[row].flip(-1) if is_turned else depth[row])


def test_words_and_their_negatives_are_those_of_the_naive_script(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive = module_of("wikitext-sparse", "train")
    ours = module_of("wikitext-sparse", "train_brimful")
    data = ["--data", str(corpus / "corpus.txt"), "--vocabulary", "300", "--sequence-length", "16"]
    for few in ([], ["--examples", "50"]):
        monkeypatch.setattr(sys, "argv", ["train", *data, *few, "--negatives", "9"])
        expected = naive.Corpus(naive.parse_arguments())
        found = ours.Corpus(ours.parse_arguments())
        expected.epoch = found.epoch = -1
        assert len(found) == len(expected)
        # Those that are held out, and all others in another order.
        batches = [*bd.Loader(found.samples[40:], batch_size=7)]
        words, negatives = (torch.cat(parts) for parts in zip(*batches, strict=True))
        for row, (its_words, its_negatives) in enumerate(zip(words, negatives, strict=True)):
            assert torch.equal(its_words, expected[40 + row][0])
            assert torch.equal(its_negatives, expected[40 + row][1])
        shuffled = torch.cat([batch[0] for batch in bd.Loader(found.samples, batch_size=7, shuffle=True)])
        assert sorted(shuffled.tolist()) == sorted(expected.examples)
        assert shuffled.tolist() != expected.examples


def test_voxels_and_their_noise_are_those_of_the_naive_script(meshes: Path) -> None:
    naive = module_of("modelnet-voxel", "train")
    ours = module_of("modelnet-voxel", "train_brimful")
    expected = naive.Voxels(meshes / "meshes", resolution=24, rotations=1, seed=3)
    found = ours.Voxels(meshes / "meshes", resolution=24, rotations=1, seed=3)
    expected.epoch = found.epoch = -1
    assert len(found) == len(expected) == 12
    ((*parts,),) = bd.Loader(found.samples[4:], batch_size=8)
    for row, sample in enumerate(zip(*parts, strict=True)):
        for part, other in zip(sample, expected[4 + row], strict=True):
            assert torch.equal(part, other)


def test_meshes_are_turned_as_in_the_naive_script(meshes: Path) -> None:
    naive = module_of("modelnet-voxel", "train")
    ours = module_of("modelnet-voxel", "train_brimful")
    turns = naive.Voxels(meshes / "meshes", resolution=24, rotations=12, seed=0).grids
    found = ours.Voxels(meshes / "meshes", resolution=24, rotations=12, seed=0)
    loader = bd.Loader(found.samples, batch_size=12)
    numbers = set()
    for _ in range(2):
        ((noisy, times, noise),) = loader
        angles = times[:, :, None, None, None] * torch.pi / 2
        grids = ((noisy - angles.sin() * noise) / angles.cos() > 0).numpy()
        for mesh, grid in enumerate(grids[:, 0]):
            same = [turn for turn in range(12) if (grid == turns[12 * mesh + turn]).all()]
            assert same, mesh
            numbers.add(same[0])
    assert len(numbers) > 2


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
    data = ("--data", nyu / "nyu.h5", "--resolution", 32)
    # Nine samples to train on and three steps an epoch: saved in the middle of one.
    comes_back("nyu-depth", *data, "--epochs", 3, folder=tmp_path, batch_size=4)


def test_language_model_comes_back(corpus: Path, tmp_path: Path) -> None:
    data = ("--data", corpus / "corpus.txt", "--vocabulary", 300, "--sequence-length", 16, "--model", "tiny")
    comes_back("wikitext-sparse", *data, "--negatives", 32, "--examples", 60, folder=tmp_path, batch_size=6)


def test_diffusion_comes_back(meshes: Path, tmp_path: Path) -> None:
    data = ("--data", meshes / "meshes", "--resolution", 16, "--model", "tiny")
    # An epoch of nine meshes ends with a batch of one.
    comes_back("modelnet-voxel", *data, "--epochs", 3, folder=tmp_path, batch_size=4)
