"""Where a rehearsed script is: its stacks are read while it runs, and reading them never ends it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / "crates/brimful-rehearse/src/hook"

PRELUDE = """
    import sys

    sys.path.insert(0, HOOK)
    from brimful_stack import StackReporter

    REPORTER = StackReporter()
    REPORTER.INTERVAL = 0.02
"""

# Frames that come and go in every way that Python knows, in the main thread and in four others.
CHURNS = """
    import os, threading, time

    def recurse(depth):
        return depth and 1 + recurse(depth - 1)

    def generate(depth):
        if depth:
            yield from generate(depth - 1)
        yield depth

    def churn():
        while time.monotonic() < END:
            recurse(60)
            sum(generate(20))
            exec("def made():\\n    return [n for n in range(9)]\\nmade()", {})
            max(map(lambda n: n, range(50)))

    REPORTER.start()
    END = time.monotonic() + 2
    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    while time.monotonic() < END:
        # Threads that begin and end are what a reader without the lock stumbles over.
        short = threading.Thread(target=recurse, args=(9,))
        short.start()
        short.join()
    for thread in threads:
        thread.join()
    print(os.path.exists(REPORTER.path))
"""

WAITS = """
    import os, time

    def load(path):
        for _ in range(500):
            if os.path.exists(path):
                break
            time.sleep(0.02)
        print(open(path).read())

    REPORTER.start()
    load(REPORTER.path)
"""


def interpreters() -> list[str]:
    """List this Python and those of other releases that the machine has."""
    found = {sys.version_info[:2]: sys.executable}
    for minor in range(10, 16):
        path = shutil.which(f"python3.{minor}")
        if path is not None and runs(path):
            found.setdefault((3, minor), path)
    return [found[version] for version in sorted(found)]


def runs(path: str) -> bool:
    """Whether it is more than a name: version managers have names for what is not installed."""
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


def run(
    directory: Path, script: str, python: str = sys.executable, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script with the reporter at hand."""
    path = directory / "train.py"
    text = textwrap.dedent(PRELUDE).replace("HOOK", repr(str(HOOK))) + textwrap.dedent(script)
    path.write_text(text)
    return subprocess.run(
        [python, str(path)],
        env={**os.environ, "BRIMFUL_REHEARSAL": str(directory), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("python", interpreters())
def test_reading_the_stacks_of_a_busy_script_does_not_end_it(tmp_path: Path, python: str) -> None:
    done = run(tmp_path, CHURNS, python)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.parametrize("python", interpreters())
def test_the_stack_of_a_script_that_waits_ends_with_its_main_thread(tmp_path: Path, python: str) -> None:
    done = run(tmp_path, WAITS, python)
    assert done.returncode == 0, done.stderr
    main = done.stdout.rsplit("(most recent call first):", 1)[1]
    assert 'train.py", line' in main
    assert "in load\n" in main
    assert main.rstrip().endswith("in <module>")


def test_a_step_takes_back_what_was_written(tmp_path: Path) -> None:
    script = """
        import os, time
        REPORTER.start()
        while not REPORTER.has_written:
            time.sleep(0.01)
        REPORTER.INTERVAL = 60
        REPORTER.after_step()
        print(os.path.exists(REPORTER.path))
    """
    assert run(tmp_path, script).stdout == "False\n"


def test_nothing_is_left_of_a_reporter_that_was_stopped(tmp_path: Path) -> None:
    script = """
        import os, threading, time
        REPORTER.start()
        while not REPORTER.has_written:
            time.sleep(0.01)
        print(threading.active_count())
        REPORTER.stop()
        REPORTER.stop()
        time.sleep(0.2)
        print(len(os.listdir("/proc/self/task")), os.path.exists(REPORTER.path))
    """
    assert run(tmp_path, script).stdout == "1\n1 False\n"


def test_a_forked_process_reports_nothing_and_ends_as_it_would(tmp_path: Path) -> None:
    script = """
        import os, warnings
        warnings.simplefilter("ignore")
        REPORTER.start()
        child = os.fork()
        if child == 0:
            REPORTER.after_step()
            REPORTER.stop()
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), REPORTER.is_own())
    """
    assert run(tmp_path, script).stdout == "7 True\n"


def test_signals_reach_the_threads_of_the_script(tmp_path: Path) -> None:
    script = """
        import os, signal, time
        REPORTER.start()
        while not REPORTER.has_written:
            time.sleep(0.01)
        thread = max(int(task) for task in os.listdir("/proc/self/task"))
        with open(f"/proc/self/task/{thread}/status") as status:
            blocked = next(line for line in status if line.startswith("SigBlk:"))
        print(int(blocked.split()[1], 16) >> signal.SIGALRM - 1 & 1)
    """
    assert run(tmp_path, script).stdout == "1\n"


def test_a_crash_in_native_code_shows_the_line_that_called_it(tmp_path: Path) -> None:
    script = """
        import ctypes

        def step():
            ctypes.string_at(0)

        REPORTER.start()
        step()
    """
    done = run(tmp_path, script)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "in step\n" in done.stderr


def test_a_library_that_handles_such_signals_keeps_them(tmp_path: Path) -> None:
    script = """
        import ctypes, faulthandler
        handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: None)
        ctypes.CDLL(None).signal(11, handler)
        REPORTER.start()
        print(faulthandler.is_enabled())
    """
    assert run(tmp_path, script).stdout == "False\n"


def test_without_a_thread_to_spare_the_script_goes_on(tmp_path: Path) -> None:
    script = """
        import _thread

        def refuse(*_):
            raise RuntimeError("can't start new thread")

        _thread.start_new_thread = refuse
        REPORTER.start()
        REPORTER.after_step()
        REPORTER.stop()
        print("trained")
    """
    assert run(tmp_path, script).stdout == "trained\n"
