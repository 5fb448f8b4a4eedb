"""`brimful.data` as a training uses it: order, resuming, errors, frameworks, and what must never hang."""

import io
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import textwrap
import threading
import time
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch

import brimful
import brimful.data as bd

N = 1000


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.npy"
    np.save(path, np.arange(N, dtype=np.int64))
    return path


def loader_of(path: Path, **settings: object) -> bd.Loader:
    named = {"batch_size": 16, "shuffle": True, "seed": 5, "memory": "1MiB", "threads": 2, **settings}
    return bd.Loader(bd.npy({"number": path}), **named)


def order_of(loader: bd.Loader) -> list[int]:
    return [int(number) for batch in loader for number in batch["number"]]


def test_batches_are_tensors_and_every_epoch_has_its_order(numbers: Path) -> None:
    loader = loader_of(numbers)
    first, second = order_of(loader), order_of(loader)
    assert sorted(first) == sorted(second) == list(range(N))
    assert first != second
    loader.set_epoch(0)
    assert order_of(loader) == first
    assert order_of(loader_of(numbers, threads=5)) == first
    assert len(loader) == 63
    batch = next(iter(loader))
    assert isinstance(batch["number"], torch.Tensor)
    assert batch["number"].dtype == torch.int64
    batch["number"] += 1  # its memory is nobody else's


def test_batches_may_be_arrays(numbers: Path) -> None:
    batch = next(iter(loader_of(numbers, output="numpy")))
    assert isinstance(batch["number"], np.ndarray)
    assert batch["number"].shape == (16,)
    batch["number"][0] = 7


def test_a_batch_that_is_kept_is_not_used_again(numbers: Path) -> None:
    kept = list(loader_of(numbers, memory="64KiB"))
    assert sorted(int(number) for batch in kept for number in batch["number"]) == list(range(N))


@pytest.mark.parametrize("world_sizes", [(1, 2), (3, 8), (8, 1), (2, 3)])
def test_a_state_is_gone_on_from_with_other_ranks(numbers: Path, world_sizes: tuple[int, int]) -> None:
    before, after = world_sizes
    seen, states = [], []
    for rank in range(before):
        loader = loader_of(numbers, rank=rank, world_size=before, batch_size=7)
        for step, batch in enumerate(loader):
            seen += batch["number"].tolist()
            if step == 5:
                states.append(loader.state_dict())
                break
    assert all(state == states[0] for state in states)
    assert json.loads(json.dumps(states[0])) == states[0]
    for rank in range(after):
        loader = loader_of(numbers, rank=rank, world_size=after, batch_size=9, threads=3)
        loader.load_state_dict(states[0])
        seen += order_of(loader)
    assert sorted(seen) == list(range(N))


def test_a_state_of_other_data_is_refused(numbers: Path) -> None:
    state = loader_of(numbers, seed=6).state_dict()
    with pytest.raises(brimful.InputError, match="expected a state with seed 5, found 6"):
        loader_of(numbers).load_state_dict(state)


EPOCHS = 5
KILLS = 50
TRAINING = """
import itertools, json, os, sys, time
import brimful.data as bd
path, log, state_path, threads, world_size, epochs = sys.argv[1:]
world_size = int(world_size)
settings = dict(batch_size=3, shuffle=True, seed=1, memory="1MiB", threads=int(threads), output="numpy")
loaders = [
    bd.Loader(bd.npy({"number": path}), rank=rank, world_size=world_size, **settings)
    for rank in range(world_size)
]
if os.path.exists(state_path):
    state = json.load(open(state_path))
    for loader in loaders:
        loader.load_state_dict(state)
while loaders[0].epoch < int(epochs):
    before = loaders[0].state_dict()
    for step in itertools.zip_longest(*loaders):
        numbers = [number for batch in step if batch is not None for number in batch["number"].tolist()]
        states = [loader.state_dict() for loader, batch in zip(loaders, step) if batch is not None]
        assert all(state == states[0] for state in states)
        with open(log, "a") as file:
            place = [before["epoch"], before["position"]]
            file.write(json.dumps({"at": place, "numbers": numbers, "world_size": world_size}) + "\\n")
        before = states[0]
        # As a checkpoint is written: whole, or not at all.
        with open(state_path + ".part", "w") as file:
            json.dump(states[0], file)
        os.replace(state_path + ".part", state_path)
        time.sleep(0.0005)
print("done")
"""


def test_killed_at_50_random_points_every_sample_is_trained_on_once(numbers: Path, tmp_path: Path) -> None:
    """Every life has other threads and another world size; a step counts when its state was saved.

    The samples of a step, rank by rank, are the next ones of the epoch's order whatever the world size is: so
    all lives together must give the order of one undisturbed run.
    """
    chance = random.Random(3)  # noqa: S311
    log, state = tmp_path / "log", tmp_path / "state"
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    kills, lives = 0, []
    while True:
        threads, world_size = chance.choice([1, 2, 3, 5]), chance.choice([1, 2, 3, 8])
        lives.append(world_size)
        process = subprocess.Popen(
            [sys.executable, script, numbers, log, state, str(threads), str(world_size), str(EPOCHS)],
            stdout=subprocess.PIPE,
            text=True,
        )
        before = log.read_text().count("\n") if log.exists() else 0
        goal = before + chance.randint(0, 12) if kills < KILLS else float("inf")
        while process.poll() is None and (not log.exists() or log.read_text().count("\n") < goal):
            time.sleep(0.001)
        process.kill()
        out, _ = process.communicate()
        if "done" in out:
            break
        kills += 1
        assert kills <= KILLS
    assert kills == KILLS
    assert set(lives) == {1, 2, 3, 8}
    # A step that was logged and not saved is there twice; the later life's counts.
    trained = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        epoch, position = entry["at"]
        samples = trained.setdefault(epoch, [])
        assert position <= len(samples)
        del samples[position:]
        samples += entry["numbers"]
    whole = loader_of(numbers, seed=1)
    assert [trained[epoch] for epoch in range(EPOCHS)] == [order_of(whole) for _ in range(EPOCHS)]


def test_errors_say_what_was_expected_and_where(numbers: Path, tmp_path: Path) -> None:
    with pytest.raises(brimful.InputError, match="is too small"):
        loader_of(numbers, memory="1KiB", batch_size=1000)
    with pytest.raises(brimful.MachineError, match="failed to read"):
        bd.npy(tmp_path / "nothing.npy")
    with pytest.raises(brimful.InputError, match='no field "depth"; available fields are number'):
        bd.npy({"number": numbers}).resize("depth", 2)
    cut = tmp_path / "cut.npy"
    cut.write_bytes(numbers.read_bytes()[:-100])
    with pytest.raises(brimful.InputError, match=r"cut\.npy: expected"):
        bd.npy(cut)


def test_leaving_early_and_exceptions_do_not_hang(numbers: Path) -> None:
    loader = loader_of(numbers)
    for _ in range(20):
        for _batch in loader:
            break
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        for _batch in loader:
            1 / 0  # noqa: B018
    assert threading.active_count() < 10
    assert len(order_of(loader)) == N


def test_a_forked_process_is_told(numbers: Path) -> None:
    running = iter(loader_of(numbers))
    next(running)
    child = os.fork()
    if child == 0:
        try:
            next(running)
        except brimful.InputError as error:
            os._exit(0 if "was used in its fork" in str(error) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    next(running)


def test_a_fork_may_begin_a_loop_of_its_own(numbers: Path) -> None:
    loader = loader_of(numbers)
    next(iter(loader))
    child = os.fork()
    if child == 0:
        os._exit(0 if len(order_of(loader)) == N else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.usefixtures("children_with_torch")
def test_ctrl_c_ends_a_loop_that_waits(tmp_path: Path) -> None:
    fifo_like = tmp_path / "wait.py"
    fifo_like.write_text(
        textwrap.dedent("""
        import sys, numpy as np, brimful.data as bd
        np.save(sys.argv[1], np.zeros((4, 2000, 2000), dtype=np.float32))
        data = bd.npy({"x": sys.argv[1]}).resize("x", 1500, filter="bicubic")
        loader = bd.Loader(data, batch_size=4, memory="1GiB", threads=1)
        print("begun", flush=True)
        while True:
            for batch in loader:
                pass
        """)
    )
    process = subprocess.Popen(
        [sys.executable, fifo_like, tmp_path / "x.npy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # In the background of a shell it is ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in said


def test_a_missing_file_is_told_with_the_folder_it_was_looked_for_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(brimful.MachineError, match=f"hint: relative paths are resolved from {tmp_path}"):
        bd.lines("nowhere.txt")
    with pytest.raises(brimful.MachineError) as caught:
        bd.lines(tmp_path / "nowhere.txt")
    assert "hint" not in str(caught.value)


def test_ctrl_c_is_heard_while_a_file_is_opened() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x.npy"
        code = "import sys, brimful.data as bd; bd.npy({'x': sys.argv[1]})"
        process = subprocess.Popen(
            [sys.executable, "-c", code, url],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        try:
            asked, _ = silent.accept()
            with asked:
                process.send_signal(signal.SIGINT)
                # The store itself would be waited for half a minute.
                _, said = process.communicate(timeout=15)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in said


def test_a_daemon_thread_in_a_loop_does_not_hinder_the_end(numbers: Path, tmp_path: Path) -> None:
    script = tmp_path / "end.py"
    script.write_text(
        textwrap.dedent("""
        import sys, threading, brimful.data as bd
        loader = bd.Loader(bd.npy({"x": sys.argv[1]}), batch_size=1, memory="1MiB", output="numpy")
        has_begun = threading.Event()
        def loop():
            while True:
                for batch in loader:
                    has_begun.set()
        threading.Thread(target=loop, daemon=True).start()
        has_begun.wait()
        """)
    )
    # Before 3.14, Python ends such a thread by unwinding it, through whatever it is in.
    for _ in range(3):
        assert subprocess.run([sys.executable, script, numbers], timeout=60, check=False).returncode == 0


def test_images_are_resized_as_torch_does(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (6, 3, 64, 48), dtype=np.uint8)
    depths = generator.random((6, 64, 48), dtype=np.float32)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "depths.npy", depths)
    data = bd.npy({"image": tmp_path / "images.npy", "depth": tmp_path / "depths.npy"})
    data = data.resize("image", 22).resize("depth", 22)
    (batch,) = bd.Loader(data, batch_size=6, memory="4MiB")
    shrunk = torch.nn.functional.interpolate
    image = shrunk(torch.from_numpy(images), size=22, mode="bilinear", antialias=True)
    depth = shrunk(torch.from_numpy(depths)[:, None], size=22, mode="bilinear", antialias=True)[:, 0]
    assert (batch["image"].int() - image.int()).abs().max() <= 1
    torch.testing.assert_close(batch["depth"], depth, rtol=1e-5, atol=1e-6)


def test_held_bytes_stay_below_the_budget_and_shrink_under_pressure(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((512, 1024), dtype=np.float32))
    loader = bd.Loader(bd.npy({"x": tmp_path / "x.npy"}), batch_size=32, memory="1MiB", prefetch=16)
    for _batch in loader:
        assert loader.held_bytes <= 1 << 20
    loader.set_pressure(1.0)
    for _batch in loader:
        assert loader.held_bytes <= 3 * 32 * 4096
    statistics = loader.statistics
    assert (statistics.batches, statistics.samples, statistics.skipped) == (32, 1024, 0)


def test_time_is_told_by_stage(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((64, 64, 64), dtype=np.float32))
    data = bd.npy({"x": tmp_path / "x.npy"}).resize("x", 32).cast("x", "float16")
    loader = bd.Loader(data, batch_size=8, memory="4MiB")
    assert loader.statistics.stages == {"read": 0, "resize x": 0, "cast x": 0}
    list(loader)
    statistics = loader.statistics
    assert all(seconds > 0 for seconds in statistics.stages.values())
    assert sum(statistics.stages.values()) <= statistics.worked_seconds


def test_the_gauge_of_a_run_makes_the_prefetch_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((512, 1024), dtype=np.float32))
    monkeypatch.setenv("BRIMFUL_GAUGES", str(tmp_path))
    told = tmp_path / "pressure"
    told.write_text("1000\n")
    data = bd.npy({"x": tmp_path / "x.npy"})
    loader = bd.Loader(data, batch_size=32, memory="4MiB", prefetch=16)
    batch = 32 * 4096
    for _batch in loader:
        time.sleep(0.01)
        assert loader.held_bytes <= 2 * batch
    for text in ["", "x", "-5", "99999"]:
        told.write_text(text)
        assert len(list(bd.Loader(data, batch_size=32, memory="4MiB"))) == 16


def test_a_function_may_come_last(numbers: Path) -> None:
    data = bd.npy({"number": numbers}).map(lambda batch: batch["number"] * 2)
    loader = bd.Loader(data, batch_size=10, memory="1MiB")
    assert next(iter(loader)).tolist() == list(range(0, 20, 2))


@pytest.mark.parametrize("lock", [True, False])
def test_functions_keep_the_order_and_their_errors_without_the_lock(
    numbers: Path, monkeypatch: pytest.MonkeyPatch, *, lock: bool
) -> None:
    monkeypatch.setattr("brimful._mapped.has_lock", lambda: lock)
    data = bd.npy({"number": numbers}).map(lambda batch: batch["number"]).map(lambda batch: batch.tolist())
    loader = bd.Loader(data, batch_size=10, shuffle=True, memory="1MiB", threads=3)
    assert sorted(itertools.chain(*loader)) == list(range(N))
    running = iter(loader)
    seen = list(itertools.chain(*(next(running) for _ in range(7))))
    again = bd.Loader(data, batch_size=10, shuffle=True, memory="1MiB", threads=3)
    again.load_state_dict(loader.state_dict())
    assert sorted([*seen, *itertools.chain(*again)]) == list(range(N))

    def fails(batch: list[int]) -> NoReturn:
        raise ZeroDivisionError(len(batch))

    with pytest.raises(ZeroDivisionError):
        list(bd.Loader(data.map(fails), batch_size=10, memory="1MiB"))


def test_parts_and_splits_have_no_sample_in_common(numbers: Path) -> None:
    data = bd.npy({"number": numbers})
    assert order_of(bd.Loader(data[10:14], batch_size=3, memory="1MiB")) == [10, 11, 12, 13]
    assert len(data[-3:]) == 3
    mapped = data.map(lambda batch: {"number": -batch["number"]})
    assert order_of(bd.Loader(mapped[10:13], batch_size=3, memory="1MiB")) == [-10, -11, -12]
    train, held_out = data.split(0.9, seed=4)
    parts = [order_of(bd.Loader(part, batch_size=8, memory="1MiB")) for part in (train, held_out)]
    assert [len(part) for part in parts] == [900, 100]
    assert sorted(parts[0] + parts[1]) == list(range(N))
    assert parts[1] != sorted(parts[1])
    assert order_of(bd.Loader(data.split(0.9, seed=4)[1], memory="1MiB")) == parts[1]
    with pytest.raises(TypeError, match="support only slices"):
        data[5]


def test_samples_may_be_numbered(numbers: Path) -> None:
    data = bd.npy({"data": numbers}).numbered()[100:].rename("number", "which")
    for batch in bd.Loader(data, batch_size=50, shuffle=True, memory="1MiB"):
        assert batch["which"].tolist() == batch["data"].tolist()
    with pytest.raises(brimful.InputError, match='a field named "data" already exists'):
        bd.npy({"data": numbers}).numbered("data")


def test_fields_are_flipped_and_cropped_together(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(64 * 8 * 8, dtype=np.float32).reshape(64, 8, 8))
    data = bd.npy({"a": tmp_path / "a.npy", "b": tmp_path / "a.npy"})
    together = data.flip(["a", "b"]).crop(["a", "b"], 5, random=True)
    apart = data.flip("a").flip("b").crop("a", 5, random=True).crop("b", 5, random=True)
    for pipeline, is_same in ((together, True), (apart, False)):
        (batch,) = bd.Loader(pipeline, batch_size=64, memory="4MiB")
        assert torch.equal(batch["a"], batch["b"]) == is_same
        assert len({float(one[0, 0] % 64) for one in batch["a"]}) > 8


def test_skipped_samples_are_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        good = name != "b"
        (tmp_path / f"{name}.off").write_text(
            "OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 1\n3 0 1 2\n" if good else "OFF\n-1"
        )
    data = bd.folder(tmp_path, "off").voxelize("mesh", 4, channel=True)
    loader = bd.Loader(data, batch_size=3, on_error="skip")
    (batch,) = loader
    assert batch["mesh"].shape == (2, 1, 4, 4, 4)
    statistics = loader.statistics
    assert statistics.skipped == 1
    assert "b.off" in statistics.skipped_samples[0]


def test_a_large_text_is_read_once_for_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    indexes = tmp_path / "cache/brimful/indexes"
    file = tmp_path / "large.txt"
    n = 100_000
    with file.open("w") as texts:
        texts.writelines(f'{{"text": "{number}", "more": "{"x" * 680}"}}\n' for number in range(n))
    # What was changed a moment ago may be changed again.
    assert len(bd.lines(file, json="text")) == n
    assert not indexes.exists()
    time.sleep(3.1)
    assert len(bd.lines(file, json="text")) == n
    (index,) = indexes.iterdir()
    made = index.stat().st_ino
    data = bd.lines(file, json="text").cast("text", "int64")
    (batch,) = bd.Loader(data[n - 10 :], batch_size=10, memory="64MiB")
    assert batch["text"].tolist() == list(range(n - 10, n))
    with file.open("a") as more:
        more.write('{"text": "one more"}\n')
    assert len(bd.lines(file, json="text")) == n + 1
    assert [index.stat().st_ino for index in indexes.iterdir()] == [made]


def test_labels_of_a_tar_file_become_numbers(tmp_path: Path) -> None:
    path = tmp_path / "shard.tar"
    with tarfile.open(path, "w") as shard:
        for number in range(5):
            for name, content in ((f"{number}.cls", str(number)), (f"{number}.score", f"{number / 4}")):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                shard.addfile(entry, io.BytesIO(content.encode()))
    data = bd.tar(path, "cls", "score").cast("cls", "int64").cast("score", "float32")
    (batch,) = bd.Loader(data, batch_size=5, memory="1MiB")
    assert batch["cls"].tolist() == list(range(5))
    assert batch["score"].tolist() == [0, 0.25, 0.5, 0.75, 1]
