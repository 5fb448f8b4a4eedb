"""The hook of `brimful run` inside of real training processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

HOOK = Path(__file__).parents[2] / "crates/brimful-supervise/src/hook"
# Places of words on the page; `gauge.rs` tells of all.
PID, STEPS, EPOCHS, DEVICE, PEAK_RESERVED, OOMS = 3, 4, 6, 7, 11, 13

TRAIN = """
    import copy, pickle, sys, threading
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Plain(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self):
            with torch.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.sub_(parameter.grad)

    def main():
        data = TensorDataset(torch.ones(64, 4))
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        compiled = torch.compile(model, backend="eager")
        for method, n_epochs in (("fork", 2), ("spawn", 1)):
            loader = DataLoader(data, batch_size=8, num_workers=2, multiprocessing_context=method)
            for epoch in range(n_epochs):
                for (x,) in loader:
                    compiled(x).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                schedule.step()
        again = pickle.loads(pickle.dumps(copy.deepcopy(optimizer)))
        print(len(again.state), schedule.get_last_lr())
        model(torch.ones(1, 4)).sum().backward()
        torch.compile(Plain(model.parameters()).step, backend="eager", fullgraph=True)()
        print(len(sys.path), sys.excepthook, sys.unraisablehook, threading.active_count())
        print([type(finder).__name__ for finder in sys.meta_path], "sitecustomize" in sys.modules)

    if __name__ == "__main__":
        main()
"""

OOM = """
    import torch
    kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(4)]
    for _ in range(CAUGHT):
        try:
            torch.empty(1 << 35, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            pass
    while True:
        kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
"""

MODES = """
    import torch
    from torch.utils.data import DataLoader

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(1 << 20, device="cuda"))

        def forward(self, size):
            return self.weight.sum() * torch.empty(size, dtype=torch.uint8, device="cuda").sum()

    small, large = 1 << 20, 1 << 35
    case, model, teacher = "CASE", Model(), Model()
    optimizer = torch.optim.Adam(model.parameters())
    model.train()
    teacher.eval()
    if case != "teacher":
        model.train()
    if case == "optimizer":
        wide = torch.nn.Parameter(torch.empty(1 << 30, device="cuda"))
        optimizer = torch.optim.Adam([wide])
        wide.grad = torch.empty_like(wide)
        optimizer.step()
    for x in DataLoader(range(4)):
        if case == "teacher" and x > 1:
            with torch.no_grad():
                teacher(large)
        model(large if case == "training" and x > 1 else small)
        model.weight.grad = torch.empty_like(model.weight)
        optimizer.step()
    if case == "backward":
        wide = torch.empty(1 << 30, device="cuda", requires_grad=True)
        wide.exp().exp().sum().backward()
    model.eval()
    if case == "evaluation without no_grad":
        for x in DataLoader(range(4)):
            model(large)
    with torch.no_grad():
        for x in DataLoader(range(4)):
            model(large)
"""


class Inside:
    """A folder as `brimful run` lays it out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("events", "gauges", "snapshots"):
            (folder / name).mkdir(parents=True)
        shutil.copytree(HOOK, folder / "hook", ignore=shutil.ignore_patterns("__pycache__"))

    def environment(self, *, python_path: str = "", **variables: str) -> dict[str, str]:
        hook = str(self.folder / "hook")
        return {
            "PYTHONPATH": f"{hook}:{python_path}" if python_path else hook,
            "BRIMFUL_INSIDE": str(self.folder),
            "BRIMFUL_GAUGES": str(self.folder / "gauges"),
            "BRIMFUL_STARTED_NS": str(time.monotonic_ns()),
            **variables,
        }

    def lines(self, kind: str | None = None) -> list[dict]:
        found = [
            json.loads(line)
            for file in sorted((self.folder / "events").iterdir())
            for line in file.read_text().splitlines()
        ]
        return [line for line in found if kind in {None, line["kind"]}]

    def pages(self) -> list[tuple[int, ...]]:
        files = sorted((self.folder / "gauges").iterdir(), key=lambda file: int(file.stem))
        return [struct.unpack("<512Q", file.read_bytes()) for file in files]


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    return Inside(tmp_path / "inside")


@pytest.fixture
def run(phantom: str, tmp_path: Path) -> Run:
    """Return what runs a script with the phantom as its GPU: this torch cannot be imported without one."""
    return lambda text, variables=None: run_script(
        text, tmp_path, {"LD_PRELOAD": phantom, **(variables or {})}
    )


def run_script(text: str, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(textwrap.dedent(text))
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTHONPATH")}
    return subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**own, **variables},
        cwd=folder,
    )


def without_times(log: str) -> str:
    """PyTorch begins its warnings with date, time and process."""
    return re.sub(r"^([A-Z])\d{4} [\d:.]+ \d+ ", r"\1 ", log, flags=re.MULTILINE)


def test_a_training_is_noted_and_notices_nothing(inside: Inside, run: Run) -> None:
    alone = run(TRAIN)
    assert alone.returncode == 0, alone.stderr
    watched = run(TRAIN, inside.environment())
    assert (watched.returncode, watched.stdout) == (0, alone.stdout)
    assert without_times(watched.stderr) == without_times(alone.stderr)

    (page,) = inside.pages()
    # The step that is compiled as a whole is not counted.
    assert page[STEPS] == 3 * 8
    torch, *loaders = inside.lines()
    assert torch["kind"] == "torch"
    assert torch["version"].startswith("2.")
    assert {torch["pid"]} == {line["pid"] for line in loaders} == {page[PID]}
    assert [line["kind"] for line in loaders] == ["loader"] * 3
    assert [line["start_method"] for line in loaders] == ["fork", "fork", "spawn"]
    for line in loaders:
        assert line["batch_size"] == 8
        assert line["n_workers"] == len(set(line["worker_pids"])) == 2
        assert line["prefetch_factor"] == 2
        assert line["n_samples"] == 64
        assert line["dataset"] == "torch.utils.data.dataset.TensorDataset"
    assert len({pid for line in loaders for pid in line["worker_pids"]}) == 6
    n_workers = page[14]
    assert [word >> 32 for word in page[16 : 16 + n_workers]][-2:] == loaders[-1]["worker_pids"]


def test_the_own_sitecustomize_is_loaded(inside: Inside, run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('own', __name__)")
    text = "import sys, sitecustomize; print(sitecustomize.__file__, sys.path[1])"
    done = run(text, inside.environment(python_path=str(own)))
    assert done.stdout.split() == ["own", "sitecustomize", str(own / "sitecustomize.py"), str(own)]
    assert done.stderr == ""
    assert inside.lines() == [], "without torch there is nothing to tell"


def test_an_exception_is_noted_whoever_shows_it(inside: Inside, run: Run) -> None:
    text = """
        import sys, torch
        sys.excepthook = lambda *_: print("mine")
        class Own(Exception):
            pass
        try:
            raise KeyError("caught")
        except KeyError:
            pass
        raise Own("no \\udc80 such \\n thing" + "x" * 10_000)
    """
    done = run(text, inside.environment())
    assert (done.returncode, done.stdout, done.stderr) == (1, "mine\n", "")
    (line,) = inside.lines("exception")
    assert line["type_name"] == "__main__.Own"
    assert line["message"].startswith("no ? such \n thingx")
    assert len(line["message"]) == 4096


def test_processes_count_for_themselves(inside: Inside, run: Run) -> None:
    text = """
        import os, torch
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = torch.ones(1)
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        optimizer.step()
        if os.fork() == 0:
            for _ in range(5):
                optimizer.step()
            os._exit(0)
        os.wait()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        optimizer.step()
        assert not torch.cuda.is_initialized()
    """
    assert run(text, inside.environment()).stderr == ""
    assert [(page[STEPS], page[DEVICE]) for page in inside.pages()] == [(2, 0), (5, 0)]
    assert len(inside.lines("torch")) == 2, "the child that did nothing has nothing to tell"


def test_steps_are_counted_where_torch_has_no_hook_for_it(inside: Inside, run: Run) -> None:
    text = """
        import copy, pickle, sys, torch
        from torch.optim import optimizer as module
        module._global_optimizer_post_hooks.clear()
        hook = sys.modules["brimful_inside"]
        hook.Inside(torch).patch_steps(module.Optimizer)
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = torch.ones(1)
        for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.SGD):
            optimizer = kind([parameter], lr=0.1)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            optimizer.step()
            schedule.step()
            again = pickle.loads(pickle.dumps(copy.deepcopy(optimizer)))
        again.step()
    """
    assert run(text, inside.environment()).stderr == ""
    assert [page[STEPS] for page in inside.pages()] == [4]


@pytest.mark.parametrize("broken", ["missing", "files", "vanishing"])
def test_a_broken_folder_leaves_the_training_alone(inside: Inside, run: Run, broken: str) -> None:
    text = """
        import os, shutil, torch
        from torch.utils.data import DataLoader
        parameter = torch.nn.Parameter(torch.zeros(1))
        parameter.grad = torch.ones(1)
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        optimizer.step()
        if os.environ["BROKEN"] == "vanishing":
            shutil.rmtree(os.environ["BRIMFUL_INSIDE"])
        for x in DataLoader([1, 2, 3], num_workers=1):
            optimizer.step()
        raise SystemExit(7)
    """
    environment = inside.environment(BROKEN=broken)
    for name in ("events", "gauges", "snapshots"):
        if broken != "vanishing":
            (inside.folder / name).rmdir()
        if broken == "files":
            (inside.folder / name).write_text("")
    done = run(text, environment)
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def replay(snapshot: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("brimful")
    return subprocess.run([program, "replay", snapshot], capture_output=True, text=True, check=False)


def test_running_out_of_gpu_memory_leaves_a_snapshot(inside: Inside, run: Run) -> None:
    done = run(OOM.replace("CAUGHT", "0"), inside.environment(BRIMFUL_TRACE_ALLOCATIONS="1"))
    assert "OutOfMemoryError" in done.stderr
    (line,) = inside.lines("cuda_oom")
    assert line["asked_bytes"] == 1 << 30
    assert line["allocated_bytes"] == 14 << 30
    assert line["reserved_bytes"] + line["free_bytes"] <= line["total_bytes"]
    (page,) = inside.pages()
    assert (page[DEVICE], page[PEAK_RESERVED], page[OOMS]) == (1, 14 << 30, 1)
    assert [file.name for file in (inside.folder / "snapshots").iterdir()] == [f"oom-{page[PID]}-1.pickle"]
    replayed = replay(inside.folder / line["snapshot"])
    assert replayed.returncode == 0, replayed.stderr
    # Where a line is wrapped depends on the length of the path.
    assert "events on device 0" in " ".join(replayed.stdout.split())
    (exception,) = inside.lines("exception")
    assert exception["type_name"] == "torch.OutOfMemoryError"
    assert exception["message"].startswith("CUDA out of memory. Tried to allocate 1024.00 MiB")


@pytest.mark.parametrize(
    ("case", "evaluating"),
    [
        ("training", False),
        ("optimizer", False),
        ("backward", False),
        ("evaluation", True),
        ("evaluation without no_grad", None),
        ("teacher", None),
    ],
)
def test_an_error_tells_training_from_evaluation(
    inside: Inside, run: Run, case: str, *, evaluating: bool | None
) -> None:
    done = run(MODES.replace("CASE", case), inside.environment())
    assert "OutOfMemoryError" in done.stderr
    assert inside.lines("cuda_oom")[-1]["evaluating"] is evaluating, done.stderr


def test_errors_that_are_caught_do_not_add_up(inside: Inside, run: Run) -> None:
    run(OOM.replace("CAUGHT", "50"), inside.environment())
    *caught, fatal = inside.lines("cuda_oom")
    assert len(caught) == 20
    assert fatal["asked_bytes"] == 1 << 30
    assert fatal["message"].startswith("CUDA out of memory")
    names = {file.name for file in (inside.folder / "snapshots").iterdir()}
    assert names == {f"oom-{fatal['pid']}-{number}.pickle" for number in (1, 2, 3)}
    assert inside.pages()[0][OOMS] == 51
    assert "no allocation history" in replay(inside.folder / fatal["snapshot"]).stderr, (
        "read, and not recorded by default"
    )
