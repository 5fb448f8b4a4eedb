"""What `brimful init` finds in scripts as people write them, by the parser that they use."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("brimful"))


class Script:
    """A script in a directory of its own, and the job file that is drafted for it."""

    def __init__(self, directory: Path, text: str) -> None:
        self.directory = directory
        (directory / "train.py").write_text(textwrap.dedent(text))

    def draft(self, *arguments: str) -> str:
        # With its writes allowed, the file `reached` is really there if the script went too far.
        command = [PROGRAM, "init", "--allow-writes", "--output", "-", "--", sys.executable, "train.py"]
        command += arguments
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not (self.directory / "reached").exists(), "the script went on after its arguments"
        self.notes = done.stderr
        return done.stdout


def test_click(tmp_path: Path) -> None:
    pytest.importorskip("click")
    script = Script(
        tmp_path,
        """
        import click

        @click.group()
        def program():
            pass

        @program.command()
        @click.option("--batch-size", "-b", default=32)
        @click.option("--grad-accum", type=int, default=1)
        @click.option("--pin-memory/--no-pin-memory", default=True)
        @click.option("--checkpointing", is_flag=True)
        @click.option("--precision", type=click.Choice(["fp32", "bf16"]), default="fp32")
        def train(**options):
            open("reached", "w").close()

        program()
        """,
    )
    text = script.draft("train", "-b", "64")
    assert '"-b", "{micro_batch}",\n  "--grad-accum", "{accumulation}",' in text
    assert '"{pin_memory?--pin-memory|--no-pin-memory}"' in text
    assert '"{activation_checkpointing?--checkpointing}"' in text
    assert '# precision = ["fp32", "bf16"]' in text
    assert "effective_batch = 64" in text


def test_typer(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    script = Script(
        tmp_path,
        """
        import typer

        def train(batch_size: int = 32, grad_accum: int = 2, num_workers: int = 4, compile: bool = True):
            open("reached", "w").close()

        typer.run(train)
        """,
    )
    text = script.draft("--num-workers", "2")
    assert "effective_batch = 64" in text
    assert "workers = [2, 1, 0]" in text
    assert '"{compile?--compile|--no-compile}"' in text


def test_fire(tmp_path: Path) -> None:
    pytest.importorskip("fire")
    script = Script(
        tmp_path,
        """
        import fire

        class Program:
            def __init__(self, out_dir="out"):
                open("reached", "w").close()

            def train(self, batch_size=8, accum_steps=2, pin_memory=True, gradient_checkpointing=False):
                pass

        fire.Fire(Program)
        """,
    )
    text = script.draft("train")
    assert "effective_batch = 16" in text
    assert '"{pin_memory?|--nopin_memory}"' in text
    assert '"{activation_checkpointing?--gradient_checkpointing}"' in text


def test_hydra(tmp_path: Path) -> None:
    pytest.importorskip("hydra")
    script = Script(
        tmp_path,
        """
        import hydra

        @hydra.main(version_base=None, config_path="conf", config_name="config")
        def main(config):
            open("reached", "w").close()

        main()
        """,
    )
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(
        "train: {batch_size: 16, accumulate_grad_batches: 2, max_steps: 1000, dir: '${oc.env:HOME}'}\n"
        "data: {num_workers: 4, image_size: 224}\nckpt_path: null\n"
    )
    text = script.draft("train.batch_size=32", "++data.num_workers=2")
    assert '"train.batch_size={micro_batch}",\n' in text
    assert '"++data.num_workers={workers}",\n' in text
    assert '"train.accumulate_grad_batches={accumulation}",\n' in text
    assert 'resume = ["ckpt_path={checkpoint}"]' in text
    assert "effective_batch = 64" in text


def test_hard_coded_values_are_named(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        loader = DataLoader(TensorDataset(torch.zeros(8, 4)), 4, num_workers=2)
        torch.optim.AdamW(torch.nn.Linear(4, 1).parameters())
        open("reached", "w").close()
        """,
    )
    script.draft()
    assert "train.py:5: DataLoader(batch_size=4, num_workers=2) is hard-coded" in script.notes
    assert "turn these values into options" in script.notes


def test_hard_coded_training_arguments_are_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    script = Script(
        tmp_path,
        """
        from transformers import TrainingArguments

        TrainingArguments(output_dir="out", per_device_train_batch_size=4, report_to=[])
        """,
    )
    script.draft()
    assert "train.py:4: TrainingArguments(per_device_train_batch_size=4) is hard-coded" in script.notes


def test_a_parser_that_takes_the_config_file_away(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    script = Script(
        tmp_path,
        """
        from transformers import HfArgumentParser, TrainingArguments

        HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(args=[])
        open("reached", "w").close()
        """,
    )
    (tmp_path / "c.yaml").write_text("output_dir: out\nper_device_train_batch_size: 4 # mine\n")
    text = script.draft("--config", "c.yaml")
    assert '[config."c.yaml"]\nper_device_train_batch_size = "{micro_batch}"' in text
    assert '"--gradient_accumulation_steps", "{accumulation}"' in text
    assert 'checkpoints = "out/checkpoint-*"' in text


def test_a_script_that_asks_for_a_gpu_first(tmp_path: Path) -> None:
    script = Script(
        tmp_path,
        """
        import argparse
        import torch

        assert torch.cuda.is_available(), "this needs a GPU"
        torch.zeros(8, device="cuda")
        parser = argparse.ArgumentParser()
        parser.add_argument("--workers", type=int, default=2)
        parser.parse_args()
        open("reached", "w").close()
        """,
    )
    assert '"--workers", "{workers}"' in script.draft()


def test_tyro(tmp_path: Path) -> None:
    pytest.importorskip("tyro")
    script = Script(
        tmp_path,
        """
        import dataclasses
        from typing import Literal

        import tyro

        @dataclasses.dataclass
        class Data:
            num_workers: int = 4
            pin_memory: bool = True

        @dataclasses.dataclass
        class Train:
            data: Data
            batch_size: int = 32  # per GPU
            grad_accum: int = 2
            precision: Literal["fp32", "bf16"] = "fp32"
            gradient_checkpointing: bool = False

        tyro.cli(Train)
        open("reached", "w").close()
        """,
    )
    text = script.draft("--batch-size", "64")
    assert "effective_batch = 128" in text
    assert '"--batch-size", "{micro_batch}",\n' in text
    assert '"--grad-accum", "{accumulation}",\n' in text
    assert '"--data.num-workers", "{workers}",\n' in text
    assert '"{pin_memory?|--data.no-pin-memory}"' in text
    assert '"{activation_checkpointing?--gradient-checkpointing|--no-gradient-checkpointing}"' in text
    assert '# precision = ["fp32", "bf16"]' in text


def test_a_subcommand_of_tyro(tmp_path: Path) -> None:
    pytest.importorskip("tyro")
    script = Script(
        tmp_path,
        """
        import tyro

        def train(batch_size: int = 16, grad_accum: int = 1, workers: int = 2):
            open("reached", "w").close()

        def evaluate(batch_size: int = 1):
            open("reached", "w").close()

        tyro.extras.subcommand_cli_from_dict({"train": train, "evaluate": evaluate})
        """,
    )
    text = script.draft("train")
    assert "effective_batch = 16" in text
    assert '"--workers", "{workers}"' in text


@pytest.mark.parametrize(
    "merge",
    [
        "OmegaConf.merge(OmegaConf.load('config.yaml'), OmegaConf.from_cli())",
        "config = OmegaConf.load('config.yaml'); config.merge_with(OmegaConf.from_cli())",
        "OmegaConf.load('config.yaml').merge_with_cli()",
        "OmegaConf.unsafe_merge(OmegaConf.load('config.yaml'), OmegaConf.from_cli(sys.argv[1:]))",
    ],
)
def test_omegaconf(tmp_path: Path, merge: str) -> None:
    pytest.importorskip("omegaconf")
    script = Script(
        tmp_path,
        f"""
        import sys
        from omegaconf import OmegaConf

        OmegaConf.merge({{"a": 1}}, {{"b": 2}})
        {merge}
        open("reached", "w").close()
        """,
    )
    (tmp_path / "config.yaml").write_text(
        "train: {batch_size: 16, accumulate_grad_batches: 2}\ndata: {num_workers: 4, pin_memory: true}\n"
    )
    text = script.draft("train.batch_size=32")
    assert '"train.batch_size={micro_batch}",\n' in text
    assert '"train.accumulate_grad_batches={accumulation}",\n' in text
    assert '"data.num_workers={workers}",\n' in text
    assert "effective_batch = 64" in text


def test_overrides_of_omegaconf_without_a_config(tmp_path: Path) -> None:
    pytest.importorskip("omegaconf")
    script = Script(
        tmp_path,
        """
        import torch
        from omegaconf import OmegaConf

        workers = OmegaConf.from_cli().get("num_workers", 8)
        torch.optim.SGD(torch.nn.Linear(4, 1).parameters())
        open("reached", "w").close()
        """,
    )
    assert '"num_workers={workers}"' in script.draft("num_workers=4")
