"""Data files that are truncated while a loop reads them: an error that names the file, and no SIGBUS."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import brimful
import brimful.data as bd

ROWS = 4000


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.npy"
    np.save(path, np.repeat(np.arange(1, ROWS + 1, dtype=np.float32)[:, None], 256, axis=1))
    return path


def loop_and_truncate(data: bd.Dataset, path: Path, size: int) -> None:
    """Truncates the file after some batches; every batch must be made of rows of the file."""
    loader = bd.Loader(data, batch_size=8, shuffle=True, memory="2MiB", threads=3)
    for step, batch in enumerate(loader):
        values = batch["row"].numpy()
        assert (values > 0).all()
        assert (values == values[:, :1]).all()
        if step == 5:
            os.truncate(path, size)


@pytest.mark.parametrize("size", [0, 128, 2_000_001])
def test_a_truncated_file_is_an_error(rows: Path, size: int) -> None:
    data = bd.npy({"row": rows})
    assert data.reading.startswith("mapped")
    with pytest.raises(brimful.InputError, match="was truncated while it was in use") as raised:
        loop_and_truncate(data, rows, size)
    assert f"it had {ROWS * 1024 + 128} bytes and now has {size}" in str(raised.value)
    assert "rows.npy" in str(raised.value)
    assert "rename" in str(raised.value)


def test_ops_do_not_see_zeros_either(rows: Path) -> None:
    with pytest.raises(brimful.InputError, match="was truncated while it was in use"):
        loop_and_truncate(bd.npy({"row": rows}).cast("row", "int64"), rows, 4096)


def test_samples_that_are_lost_can_be_skipped(rows: Path) -> None:
    loader = bd.Loader(bd.npy({"row": rows}), batch_size=8, on_error="skip", memory="2MiB")
    os.truncate(rows, 1_000_000)
    for batch in loader:
        assert (batch["row"] > 0).all()


PROGRAM = """
    import faulthandler, mmap, os, signal, sys
    import brimful, brimful.data as bd

    def rows():
        path = sys.argv[1]
        with open(path, "wb") as file:
            file.write(b"\\1" * 4_000_000)
        return path

    def end_of_loop(enable_within=False):
        path = rows()
        loader = bd.Loader(bd.raw(path, (1000,), "uint8"), batch_size=8, memory="2MiB")
        try:
            for step, batch in enumerate(loader):
                if step == 3:
                    if enable_within:
                        faulthandler.enable()
                    os.truncate(path, 0)
        except brimful.InputError as error:
            assert "was truncated" in str(error), error
            print("error", flush=True)

    def fault():
        path = rows()
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        os.truncate(path, 0)
        mapped[2_000_000]
"""


def run(code: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(PROGRAM) + textwrap.dedent(code)
    arguments = [sys.executable, "-c", program, str(tmp_path / "rows.bin")]
    return subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=120)


@pytest.mark.usefixtures("children_with_torch")
@pytest.mark.parametrize(
    "code",
    [
        "end_of_loop(); fault()",
        "faulthandler.enable(); end_of_loop(); fault()",
        "end_of_loop(); faulthandler.enable(); fault()",
        "end_of_loop(); faulthandler.enable(); end_of_loop(); fault()",
        "faulthandler.enable(); end_of_loop(); faulthandler.disable(); end_of_loop(); fault()",
    ],
)
def test_other_faults_end_the_process_and_are_reported_once(code: str, tmp_path: Path) -> None:
    done = run(code, tmp_path)
    assert done.returncode == -signal.SIGBUS, done.stderr
    assert done.stdout.split() == ["error"] * code.count("end_of_loop")
    is_enabled = "enable()" in code and "disable()" not in code
    assert done.stderr.count("Fatal Python error: Bus error") == int(is_enabled), done.stderr


@pytest.mark.usefixtures("children_with_torch")
def test_a_handler_that_is_enabled_within_a_loop_reports_and_the_loop_raises(tmp_path: Path) -> None:
    done = run("end_of_loop(enable_within=True); fault()", tmp_path)
    assert done.stdout.split() == ["error"], done.stderr
    assert done.returncode == -signal.SIGBUS


@pytest.mark.usefixtures("children_with_torch")
def test_a_fork_and_a_worker_of_torch_have_the_same_protection(tmp_path: Path) -> None:
    done = run(
        """
        import torch.utils.data

        class Truncating(torch.utils.data.IterableDataset):
            def __iter__(self):
                end_of_loop()
                yield 1

        end_of_loop()
        child = os.fork()
        if child == 0:
            end_of_loop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert list(torch.utils.data.DataLoader(Truncating(), num_workers=1, batch_size=None)) == [1]
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["error"] * 3


def test_a_shared_copy_on_disk_that_is_truncated_is_an_error(tmp_path: Path) -> None:
    shared = brimful.share([f"text {number}" * 50 for number in range(10_000)], where=tmp_path)
    assert shared[9000] == "text 9000" * 50
    for path in Path("/proc/self/fd").iterdir():
        if path.is_symlink() and str(path.readlink()).startswith(str(tmp_path)):
            os.truncate(path, 8192)
    for read in (lambda: shared[9000], lambda: list(shared), shared.tolist, lambda: "no" in shared):
        with pytest.raises(brimful.MachineError, match="was truncated while it was in use"):
            read()
