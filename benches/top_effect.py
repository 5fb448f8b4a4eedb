"""What `brimful top` costs the run that it shows, and itself.

    python benches/top_effect.py --brimful target/release/brimful --python PATH [--seconds 240]

PATH is a Python that has torch. A training with two DataLoader workers runs under `brimful run`, and `brimful
top` is attached to it in a terminal of 80x24. It is stopped and let go on every second, and the steps of
neighboring seconds are compared. Prints the median slowdown over these pairs, and the share of a core and the
memory of top.
"""

import argparse
import contextlib
import fcntl
import os
import pathlib
import pty
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

from run_overhead import TRAINING, cpu_of, resident_of, slowdowns


def drain(terminal):
    """Read what top draws, as a terminal does."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 1 << 16):
            pass


def attached(brimful, folder):
    """`brimful top` in a terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(brimful, [brimful, "top", "--state-dir", folder])  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    threading.Thread(target=drain, args=(terminal,), daemon=True).start()
    return pid, terminal


def interleaved(brimful, python, seconds):
    """Slowdown of each pair of seconds, the share of a core that top takes, its resident bytes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [brimful, "run", "-q", "--state-dir", folder, "--", python, "-c", TRAINING]
        run = subprocess.Popen([*command, str(seconds), f"{folder}/times"])
        # Importing and the first steps are not compared.
        time.sleep(15)
        top, terminal = attached(brimful, folder)
        time.sleep(2)
        turns, began, first_cpu = [], time.monotonic(), cpu_of(top)
        while time.monotonic() - began < seconds - 30 and run.poll() is None:
            is_on = len(turns) % 2 == 0
            os.kill(top, signal.SIGCONT if is_on else signal.SIGSTOP)
            turns.append(time.monotonic())
            time.sleep(1)
        os.kill(top, signal.SIGCONT)
        share = (cpu_of(top) - first_cpu) / (time.monotonic() - began) * 2
        resident = resident_of(top)
        os.write(terminal, b"q")
        if run.wait() != 0:
            sys.exit("the training failed")
        os.waitpid(top, 0)
        times = [float(line) for line in pathlib.Path(folder, "times").read_text().split()]
    return slowdowns(times, turns), share, resident


def main():
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--brimful", default="brimful")
    arguments.add_argument("--python", default=sys.executable)
    arguments.add_argument("--seconds", type=float, default=240)
    arguments = arguments.parse_args()
    slower, share, resident = interleaved(arguments.brimful, arguments.python, arguments.seconds)
    doubt = 1.25 * 1.96 * statistics.stdev(slower) / len(slower) ** 0.5
    middle = statistics.median(slower) * 100
    print(
        f"slowdown, median of {len(slower)} pairs of neighboring seconds: {middle:+.2f} % "
        f"(give or take {doubt * 100:.2f})"
    )
    print(f"top: {share * 100:.2f} % of a core, peak resident memory {resident / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
