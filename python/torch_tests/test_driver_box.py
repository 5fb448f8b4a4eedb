"""Beside a driver whose card never answers, every command answers as without one, and reaches nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import driver_box
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(driver_box.why_not() is not None, reason=str(driver_box.why_not()))

STEPS = """
    import torch

    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

TRAINER = """
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            return {"input_ids": torch.ones(16, dtype=torch.long), "labels": index % 2}

    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=2, max_steps=4, report_to=[])
    Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=Rows()).train()
"""

RANKS = """
    import os
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
"""

# Tries what a child might: to open the nodes, and to load the driver.
CHILD = """
import ctypes, os
for name in ["nvidia0", "nvidiactl", "nvidia-uvm"]:
    try:
        os.open("/dev/" + name, os.O_RDWR)
    except OSError:
        continue
    raise SystemExit("reached " + name)
try:
    found = ctypes.CDLL("libcuda.so.1").cuInit(0)
except OSError:
    found = "absent"
print("cuInit", found)
"""

STATIC = """
#include <fcntl.h>
#include <stdio.h>
int main(void) {
    const char *nodes[] = {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"};
    for (int i = 0; i < 3; i++)
        if (open(nodes[i], O_RDWR) >= 0) { printf("reached %s\\n", nodes[i]); return 1; }
    return 0;
}
"""

EMPTY_ENVIRONMENT = (
    f"""
    import subprocess, sys
    subprocess.run([sys.executable, "-c", {CHILD!r}], env={{}}, check=True)
"""
    + STEPS
)

STATIC_CHILD = (
    """
    import subprocess
    subprocess.run(["./opens"], check=True)
"""
    + STEPS
)

SCRIPTS = {
    "plain": STEPS,
    "trainer": TRAINER,
    "ranks": RANKS,
    "empty": EMPTY_ENVIRONMENT,
    "static": STATIC_CHILD,
}
MODES = {
    "overlay": ["--isolation", "overlay"],
    "redirect": ["--isolation", "redirect"],
    "off": ["--allow-writes"],
}
PROGRAM = str(Path(sys.executable).with_name("brimful"))

# What names the machine or the moment; everything else must be the same beside a driver.
OF_THE_MACHINE = {
    "gpu_hidden",
    "containment",
    "isolation",
    "machine_gpus",
    "seconds",
    "host_bytes",
    "host",
    "host_terms",
}


class Place:
    """A folder with the script, readable by everybody."""

    def __init__(self, script: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="brimful-box-"))
        (self.root / "train.py").write_text(textwrap.dedent(SCRIPTS[script]))
        if script == "static":
            static = ["cc", "-static", "-xc", "-", "-o", self.root / "opens"]
            subprocess.run(static, input=STATIC, text=True, check=True)
        python = [sys.executable, "train.py"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
        self.command = torchrun if script == "ranks" else python

    def run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command here, with a home of its own."""
        home = self.root / f"home-{len(list(self.root.iterdir()))}"
        home.mkdir()
        for path in [self.root, *self.root.rglob("*")]:
            os.chown(path, driver_box.USER_ID, driver_box.USER_ID)
        unset = {"LD_PRELOAD", "XDG_STATE_HOME", "BRIMFUL_PHANTOM_DEVICES"}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment["HOME"] = str(home)
        return subprocess.run(
            words, cwd=self.root, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    def predict(self, *options: str, **box: object) -> dict:
        """Run `brimful predict`, in the box where its options are given."""
        words = [PROGRAM, "predict", "--gpu", "t4", "--json", *options, "--", *self.command]
        done = self.run(driver_box.command(words, **box) if box else words)  # type: ignore[arg-type]
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Return a folder for the script whose name is asked for."""
    made = Place(getattr(request, "param", "plain"))
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


@pytest.fixture(scope="session")
def libraries() -> Path:
    """Return NVIDIA's user-space driver."""
    folder = driver_box.driver()
    if folder is None:
        pytest.skip("Debian's packages of the driver can't be had here")
    return folder


def facts(document: object) -> object:
    """Return the document without what names the machine."""
    if isinstance(document, dict):
        return {name: facts(value) for name, value in document.items() if name not in OF_THE_MACHINE}
    if isinstance(document, list):
        return [
            facts(value) for value in document if not isinstance(value, dict) or value.get("name") != "host"
        ]
    return document


@pytest.mark.parametrize(
    ("place", "mode", "user"),
    [
        ("plain", "overlay", True),
        ("plain", "redirect", False),
        ("trainer", "off", False),
        ("trainer", "overlay", False),
        ("ranks", "redirect", True),
        ("ranks", "overlay", False),
        ("empty", "overlay", True),
        ("empty", "redirect", False),
        ("empty", "off", True),
        ("static", "overlay", False),
        ("static", "redirect", True),
        ("static", "off", False),
    ],
    indirect=["place"],
)
def test_a_driver_changes_no_answer(place: Place, libraries: Path, mode: str, user: bool) -> None:  # noqa: FBT001
    outside = place.predict(*MODES[mode])
    inside = place.predict(*MODES[mode], libraries=libraries, user=user)
    assert facts(inside) == facts(outside)
    hidden = inside["gpu_hidden"]
    assert hidden == "devices" if mode == "overlay" else hidden in {"devices", "landlock"}


def opened(trace: str) -> list[str]:
    """Return the calls of a trace that opened a GPU node or that asked one for anything."""
    nodes = r"/dev/(?:nvidia\d|nvidiactl|nvidia-uvm|nvidia-modeset|dxg)"
    reached = re.compile(rf'open(?:at2?)?\(.*"{nodes}.*\) = \d|ioctl\(\d+<{nodes}')
    return [line for line in trace.splitlines() if reached.search(line)]


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("nodes", ["real", "null"])
def test_no_call_reaches_a_node(place: Place, libraries: Path, mode: str, nodes: str) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    trace = place.root / "trace"
    watched = [
        "strace",
        "-f",
        "-y",
        "-o",
        str(trace),
        "-e",
        "trace=open,openat,openat2,ioctl",
        "--seccomp-bpf",
    ]
    words = [*watched, PROGRAM, "predict", "--gpu", "t4", "--json", *MODES[mode], "--", *place.command]
    done = place.run(driver_box.command(words, libraries=libraries, nodes=nodes))
    assert done.returncode == 0, done.stderr
    found = trace.read_text(errors="replace")
    assert "train.py" in found
    assert opened(found) == []


def test_the_trace_would_tell() -> None:
    reached = '7 openat(AT_FDCWD</>, "/dev/nvidiactl", O_RDWR|O_CLOEXEC) = 3</dev/nvidiactl<char 195:255>>'
    denied = '7 openat(AT_FDCWD</>, "/dev/nvidiactl", O_RDWR) = -1 EACCES (Permission denied)'
    asked = "7 ioctl(3</dev/nvidia0<char 195:0>>, _IOC(0x3, 0x46, 0xd2, 0x48), 0x7ffe) = 0"
    assert opened(f"{reached}\n{denied}\n{asked}") == [reached, asked]


@pytest.mark.parametrize("mode", list(MODES))
def test_a_driver_that_aborts_is_never_loaded(
    place: Place, libraries: Path, tmp_path: Path, mode: str
) -> None:
    library = driver_box.aborting_library(tmp_path)
    driver_box.linked_program(library, place.root / "linked")
    linked = """
        import subprocess
        subprocess.run(["./linked"], check=True)
        subprocess.run(["./linked"], env={}, check=True)
    """
    (place.root / "train.py").write_text(textwrap.dedent(linked) + textwrap.dedent(STEPS))
    place.predict(*MODES[mode], libraries=libraries, libcuda=library)


@pytest.mark.parametrize("nodes", ["real", "none"])
@pytest.mark.parametrize("has", ["nothing", "proc", "libraries", "both"])
def test_whatever_the_machine_has_of_a_driver(place: Place, libraries: Path, nodes: str, has: str) -> None:
    has_libraries = libraries if has in {"libraries", "both"} else None
    inside = place.predict(nodes=nodes, proc=has in {"proc", "both"}, libraries=has_libraries)
    # Libraries alone reach nothing.
    has_driver = nodes == "real" or has in {"proc", "both"}
    assert inside["gpu_hidden"] == ("devices" if has_driver else "no_driver")


def test_every_command_answers_a_user_beside_a_driver(place: Place, libraries: Path) -> None:
    job = f"""
        [job]
        command = ["{sys.executable}", "train.py"]

        [knobs]
        allocator = ["", "expandable_segments:True"]
    """
    commands = {
        "init": ["init", "--output", "-", "--", *place.command],
        "compare": ["compare", "--gpu", "t4,l4", "--json", "--", *place.command],
        "plan": ["plan", "--gpu", "t4", "--json"],
    }
    (place.root / "brimful.toml").write_text(textwrap.dedent(job))
    for name, words in commands.items():
        outside = place.run([PROGRAM, *words])
        assert outside.returncode == 0, (name, outside.stderr)
        inside = place.run(driver_box.command([PROGRAM, *words], libraries=libraries, user=True))
        assert inside.returncode == 0, (name, inside.stderr)
        if name == "init":
            assert inside.stdout == outside.stdout
        else:
            assert facts(json.loads(inside.stdout)) == facts(json.loads(outside.stdout)), name
