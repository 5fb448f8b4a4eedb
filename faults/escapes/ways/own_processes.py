"""Stop, end and renice one's own children."""

import os
import signal
import subprocess

from way import attempt

KIND = "processes"
EXPECTED = {"overlay": "done", "redirect": "done"}


def do() -> None:
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    os.setpriority(os.PRIO_PROCESS, child.pid, os.getpriority(os.PRIO_PROCESS, 0) + 1)
    os.sched_setaffinity(child.pid, os.sched_getaffinity(0))
    child.send_signal(signal.SIGSTOP)
    os.killpg(child.pid, signal.SIGCONT)
    child.terminate()
    assert child.wait(20) == -signal.SIGTERM


attempt(do)
