"""Kernels of notebooks in a control group of 1 GB that take memory until something happens.

    python benches/notebook_kills.py [--rounds 20] [--limit 1.0] [--rate 0.3]

Run it with a Python that has brimful and ipykernel. Each round starts a real Jupyter kernel inside the
group, calls `brimful.watch()`, and takes memory in a cell, twice: with warnings only the kernel is killed,
and the next must say why with `%load_ext brimful`; with `on_pressure="interrupt"` the cell must be
interrupted with all variables kept. Needs the right to make control groups (root).
"""

import argparse
import os
import queue
import sys
import tempfile
import time

from groups import Group
from jupyter_client import KernelManager

GROW = """
import time
held, began = [], time.perf_counter()
while True:
    held.append(bytearray(b"x") * (8 << 20))
    wait = began + len(held) * (8 << 20) / {rate} - time.perf_counter()
    if wait > 0:
        time.sleep(wait)
"""


class Kernel:
    """A kernel inside a control group."""

    def __init__(self, group, folder):
        join = 'for one in $0; do echo 0 > "$one/cgroup.procs" || exit; done; exec "$@"'
        folders = " ".join(map(str, group.folders()))
        self.manager = KernelManager()
        spec = self.manager.kernel_spec
        kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.argv = ["/bin/sh", "-c", join, folders, *kernel]
        environment = {**os.environ, "BRIMFUL_STATE_DIR": f"{folder}/state"}
        self.manager.start_kernel(cwd=folder, env=environment)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def cell(self, code, timeout=60):
        """What a cell prints, displays and raises; `dead` if the kernel died."""
        self.client.execute(code)
        said, deadline = [], time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                if not self.manager.is_alive():
                    return [*said, "dead"]
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                said.append(content["text"])
            elif kind in {"display_data", "execute_result"}:
                said.append(content["data"].get("text/html") or content["data"]["text/plain"])
            elif kind == "error":
                said.append(f"raised {content['ename']}")
            elif kind == "status" and content["execution_state"] == "idle":
                return said
        return [*said, "timeout"]

    def end(self):
        """Shut the kernel down."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def one(on_pressure, limit, rate, number):
    """What happened in one round."""
    group = Group(f"brimful-notebook-{os.getpid()}-{number}", limit)
    try:
        with tempfile.TemporaryDirectory() as folder:
            kernel = Kernel(group, folder)
            kernel.cell(f"import brimful; precious = 42; brimful.watch(on_pressure={on_pressure!r})")
            said = kernel.cell(GROW.format(rate=rate * 1e9))
            warned = any("brimful:" in text for text in said)
            kept = "42" in kernel.cell("precious") if "dead" not in said else False
            kernel.end()
            found = {"warned": warned, "killed": "dead" in said, "kept": kept, "told": False}
            if found["killed"]:
                time.sleep(1)
                after = Kernel(group, folder)
                shown = "".join(after.cell("%load_ext brimful"))
                found["told"] = "was killed" in shown and "host_oom_kill" in shown
                again = "".join(after.cell("%reload_ext brimful"))
                found["told_twice"] = "was killed" in again
                after.end()
            return found, said
    finally:
        group.end()
        group.remove()


def main():
    """Print every round, then the counts."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--limit", type=float, default=1.0, help="GB")
    arguments.add_argument("--rate", type=float, default=0.3, help="GB/s")
    chosen = arguments.parse_args()
    counts = {"warn": [0, 0, 0], "interrupt": [0, 0, 0]}
    for number in range(chosen.rounds):
        for on_pressure, count in counts.items():
            found, said = one(on_pressure, int(chosen.limit * 1e9), chosen.rate, f"{number}-{on_pressure}")
            count[0] += found["warned"]
            count[1] += found["killed"]
            count[2] += found["told"] if on_pressure == "warn" else found["kept"]
            print(number, on_pressure, found, "".join(said)[-300:].replace("\n", " | "), flush=True)
    print("| on_pressure | rounds | warned | killed | explained after the restart / variables kept |")
    print("|---|---|---|---|---|")
    for on_pressure, (warned, killed, good) in counts.items():
        print(f"| {on_pressure} | {chosen.rounds} | {warned} | {killed} | {good} |")


if __name__ == "__main__":
    main()
