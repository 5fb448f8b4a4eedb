"""`brimful.run()`, `%%brimful`, `brimful.explain()`, `brimful.runs()` and `brimful.replay()`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import cast

import pytest

import brimful
from brimful._child import function_directory
from brimful._function_job import FunctionJob
from brimful._notebook import run_cell

RUNS = Path(__file__).parents[2] / "fixtures/runs"


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of its own for each test."""
    place = tmp_path / "state"
    monkeypatch.setenv("BRIMFUL_STATE_DIR", str(place))
    return place


def test_a_function_trains_in_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    def greet() -> None:
        print("trained in", os.getpid())  # noqa: T201

    run = brimful.run(greet, quiet=True)
    assert run.finished
    assert run.exit_code == 0
    said = capsys.readouterr().out
    assert "trained in" in said
    assert str(os.getpid()) not in said
    [listed] = brimful.runs().runs
    assert (listed.id, listed.state) == (run.id, "finished")


def test_a_function_comes_back_with_less_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def train(size: int, name: str, micro_batch: int, accumulation: int, checkpoint: str = "nothing") -> None:
        import resource  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        print(f"size {size}, {name!r}, {micro_batch} x {accumulation}, from {Path(checkpoint).name}")  # noqa: T201
        Path("step-3.json").write_text('{"step": 3}', encoding="utf-8")
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        bytearray(size << 30)

    run = brimful.run(
        train,
        knobs={"size": [8, 1], "name": "{7}", "micro_batch": [4, 2]},
        effective_batch=8,
        sacrifice=["size"],
        checkpoints="step-*.json",
        as_wanted=True,
    )
    said = capsys.readouterr().out
    assert run.finished, said
    assert said.splitlines()[0] == "size 8, '{7}', 4 x 2, from nothing"
    assert said.splitlines()[-1].startswith("size 1, '{7}', ")
    assert said.splitlines()[-1].endswith("from step-3.json")


def test_arguments_of_a_function_arrive_as_they_were_given() -> None:
    def train(**arguments: object) -> dict[str, object]:
        return arguments

    knobs = {"scale": [2.0, 0.5], "text": ["32"], "on": [True], "micro_batch": [4, 2], "prefetch": [4, 2]}
    job = FunctionJob(train, knobs, 8, [], None)
    called = job.caller("scale=2", "text=32", "on=true", "micro_batch=4", "accumulation=1")
    # One process has the whole batch, whatever the plan assumed; without workers there is no prefetch.
    expected = {"scale": 2.0, "text": "32", "on": True, "micro_batch": 4, "prefetch": None, "accumulation": 2}
    assert called == expected
    assert isinstance(cast("dict[str, object]", called)["scale"], float)


def test_ranks_share_the_batch_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    job = FunctionJob(lambda **arguments: arguments, {"micro_batch": [4, 2]}, 16, [], None)
    for ranks, times in (("1", 4), ("2", 2), ("4", 1)):
        monkeypatch.setenv("WORLD_SIZE", ranks)
        called = cast("dict[str, object]", job.caller("micro_batch=4", "accumulation=9"))
        assert called["accumulation"] == times


def test_markup_in_a_command_is_text_in_a_notebook(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "pass", "<b>bold</b>"]
    brimful.run(command, state_dir=tmp_path)
    shown = brimful.runs(state_dir=tmp_path)._repr_html_()
    assert "&lt;b&gt;bold" in shown
    assert "<b>" not in shown


def test_a_script_from_standard_input_can_run_a_function() -> None:
    pytest.importorskip("cloudpickle")
    script = "import brimful\ndef train():\n    print('trained')\nprint(brimful.run(train).finished)\n"
    done = subprocess.run([sys.executable], input=script, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["trained", "True"], done.stderr


def test_the_same_function_has_the_same_directory() -> None:
    with function_directory(abs) as (first, function):
        with function_directory(abs) as (other, _):
            assert other != first
        assert Path(first).stat().st_mode & 0o77 == 0
    assert not Path(first).exists()
    assert not Path(other).exists()
    with function_directory(abs) as (again, pickled):
        assert (again, pickled) == (first, function)


def test_a_killed_command_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    run = brimful.run([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
    assert run.exit_code == 128 + signal.SIGKILL
    assert run.explanation is not None
    assert run.explanation.run is not None
    assert run.explanation.run.signal == signal.SIGKILL
    assert run.explanation.verdict.summary in repr(run)
    assert "What to do" in str(run)
    html = run.explanation._repr_html_()
    assert "Full report as text" in html
    assert "<svg" not in html
    assert brimful.explain() == run.explanation
    assert "brimful: the run was killed" in capsys.readouterr().err


def test_errors_of_the_command_line_are_input_errors() -> None:
    with pytest.raises(brimful.InputError, match="could not start the training"):
        brimful.run(["true"], on_pressure="pray")
    with pytest.raises(brimful.InputError, match="belong to a job file"):
        brimful.run(["true"], mode="debug")
    with pytest.raises(brimful.InputError, match="require knobs or a job file"):
        brimful.run(["true"], resume=True)
    with pytest.raises(brimful.InputError, match="expected a function"):
        brimful.run(["true"], knobs={"workers": 1})
    with pytest.raises(brimful.InputError, match="effective_batch is missing"):
        brimful.run(print, knobs={"micro_batch": [2, 1]})
    with pytest.raises(brimful.InputError, match="not among the knobs"):
        brimful.run(print, knobs={"workers": [2, 1]}, sacrifice=["model"])
    with pytest.raises(brimful.InputError, match="cannot be a knob"):
        brimful.run(print, knobs={"a-b": [2, 1]})
    with pytest.raises(brimful.InputError, match="a finite number"):
        brimful.run(print, knobs={"scale": [float("nan"), 1.0]})
    with pytest.raises(brimful.InputError, match="a list of arguments"):
        brimful.run("python train.py")
    with pytest.raises(brimful.InputError, match="no run has been recorded"):
        brimful.explain()


def test_an_interrupt_reaches_the_training(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import signal, sys, time
        import brimful
        started, ended = sys.argv[1:]
        def train():
            try:
                open(started, "w").close()
                time.sleep(60)
            except KeyboardInterrupt:
                open(ended, "w").close()
                raise
        class Cell:
            "A stream without a file descriptor, as in a notebook."
            def write(self, text): pass
            def flush(self): pass
        if __name__ == "__main__":
            sys.stdout = Cell()
            try:
                brimful.run(train)
            except KeyboardInterrupt:
                sys.exit(42)
    """)
    path = tmp_path / "cell.py"
    path.write_text(script)
    started, ended = tmp_path / "started", tmp_path / "ended"
    process = subprocess.Popen([sys.executable, path, started, ended])
    wait_for(started)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 42
    assert ended.exists()


def test_the_training_stops_with_the_process_that_started_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    train = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    script = f"import brimful, sys; brimful.run([sys.executable, '-c', {train!r}])"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(pid_file)
    time.sleep(0.2)
    training = Path(f"/proc/{pid_file.read_text()}")
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while training.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not training.exists()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.05)


def test_a_cell_runs_in_another_process_with_the_variables_it_uses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    variables = {"width": 21, "unused": threading.Lock()}
    run = run_cell("def double():\n    return 2 * width\nprint('is', double(), __name__)", ["-q"], variables)
    assert run.finished
    assert "is 42 __main__" in capsys.readouterr().out
    with pytest.raises(brimful.InputError, match="the variable `unused` cannot be copied"):
        run_cell("print(unused)", [], variables)


def test_recorded_runs_are_explained_in_three_forms() -> None:
    explanation = brimful.explain(RUNS / "cuda-fragmented/record.jsonl")
    assert explanation.verdict.cause == "cuda_oom_fragmented"
    assert "<code>cuda_oom_fragmented</code>" in explanation._repr_html_()
    assert "What to do, cheapest first" in str(explanation)
    assert explanation.to_dict()["verdict"]["cause"] == "cuda_oom_fragmented"
    assert repr(explanation).startswith("Explanation(cuda_oom_fragmented, ")
    with pytest.raises(brimful.InputError, match="does not exist"):
        brimful.explain("no/such/file.log")


def test_replay_names_what_it_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_text("no pickle")
    with pytest.raises(brimful.InputError, match="cannot replay"):
        brimful.replay(path, gpu="t4")


WATCHED = """
    import os, signal, sys, time
    import brimful
    watch = brimful.watch()
    print(watch.id, flush=True)
    {then}
"""


@pytest.mark.parametrize(
    ("then", "state"),
    [
        ("", "finished"),
        ("os._exit(3)", "ended"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended"),
        ("watch.stop(); time.sleep(1); os.kill(os.getpid(), signal.SIGKILL)", "finished"),
    ],
)
def test_a_watch_outlives_the_process_and_notes_its_end(then: str, state: str) -> None:
    script = textwrap.dedent(WATCHED.replace("{then}", then))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    run_id = done.stdout.strip()
    assert run_id, done.stderr
    deadline = time.monotonic() + 20
    while (found := brimful.runs().runs[0]).state == "running" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (found.id, found.state) == (run_id, state)


def test_watch_rejects_what_it_does_not_know() -> None:
    with pytest.raises(brimful.InputError, match="on_pressure must be"):
        brimful.watch(on_pressure="checkpoint")


def test_reports_of_recorded_runs(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    brimful.report(RUNS / "cuda-fragmented/record.jsonl", path=path)
    page = path.read_text()
    assert "Content-Security-Policy" in page
    assert "<svg" in page
    brimful.report(RUNS / "shm-bus-error/record.jsonl", path=path)
    assert path.read_text() != page
    mine = tmp_path / "mine.html"
    mine.write_text("mine")
    with pytest.raises(brimful.InputError, match="is not a report of brimful"):
        brimful.report(RUNS / "shm-bus-error/record.jsonl", path=mine)
    assert mine.read_text() == "mine"
