"""Tasks of a preparation on a Ray cluster or in a Slurm array, instead of threads of this process."""

from __future__ import annotations

import functools
import json
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from brimful import _native
from brimful._errors import InputError, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# How often Ray starts a task again whose worker or node has died.
_MAX_RETRIES = 20
# Tasks that are submitted at a time: the driver holds a reference to each.
_MAX_SUBMITTED = 1000


def _everywhere(out: str) -> str:
    """Return a path or URL that means the same in other processes."""
    return out if "://" in out else os.path.abspath(out)  # noqa: PTH100


def on_ray(
    recipe: _native.Recipe, out: str, *, memory: int, address: str | None, report: Callable[[str], object]
) -> str:
    """Run all tasks on a Ray cluster and return the result as JSON.

    The nodes must reach `out` and the inputs under the same paths.
    """
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415
    except ImportError:
        raise InputError(
            "`--on ray` requires the package ray", ["install it with `pip install 'brimful[ray]'`"]
        ) from None
    out = _everywhere(out)
    coordinator = _native.TaskCoordinator(out, recipe)
    try:
        if coordinator.finished is not None:
            return coordinator.finished
        if not ray.is_initialized():
            # One failed task ends the command; the others would print their tracebacks after its message.
            os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
            _check_reachable(address or os.environ.get("RAY_ADDRESS", ""))
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise MachineError(
                    f"cannot connect to a Ray cluster: {error}",
                    ["check RAY_ADDRESS and the cluster's authentication, or leave out `--on ray`"],
                ) from None
        _warn_if_too_large(ray, memory)
        # Memory is requested, so that Ray does not place more tasks on a node than fit.
        task = ray.remote(num_cpus=1, memory=memory, max_retries=_MAX_RETRIES)(_run_task)

        peak = 0

        def run(phase: str, tasks: Iterable[int], total: int) -> None:
            nonlocal peak
            submit = functools.partial(_submit, task, out, phase, memory)
            peak = max(peak, _run_all(ray, submit, tasks, report, f"{phase} tasks on Ray, of {total:,}"))

        tails = coordinator.map_tasks()
        run("map", coordinator.missing_map_tasks(), tails)
        run("map", [tails], 1)
        shards = coordinator.shards()
        run("shard", range(shards), shards)
        return json.dumps({**json.loads(coordinator.finish()), "peak_bytes": peak})
    finally:
        coordinator.close()


def _check_reachable(address: str) -> None:
    """Fail at once if nothing listens at an address: Ray would try for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        raise MachineError(
            f"cannot connect to a Ray cluster at {address}: {error}",
            ["check RAY_ADDRESS and that the cluster is running, or leave out `--on ray`"],
        ) from None


def _warn_if_too_large(ray: Any, memory: int) -> None:  # noqa: ANN401
    """Warn if no node can run a task: Ray would wait without a message. An autoscaler may still start one."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    largest = max((node.get("memory", 0) for node in nodes if node.get("CPU", 0) >= 1), default=0)
    if largest < memory:
        size = _native.size_text
        sys.stderr.write(
            f"warning: waiting for a node with one CPU and {size(memory)} of memory for Ray tasks"
            f" (the largest now: {size(int(largest))})\nhint: `--memory` is the budget of each task\n"
        )


def _submit(task: Any, out: str, phase: str, memory: int, number: int) -> object:  # noqa: ANN401
    return task.remote(out, phase, number, memory)


def _run_task(out: str, phase: str, number: int, memory: int) -> int:
    _native.run_prepare_task(out, phase, number, memory)
    # In kilobytes, with the page cache of mapped files.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _run_all(
    ray: Any,  # noqa: ANN401
    submit: Callable[[int], object],
    tasks: Iterable[int],
    report: Callable[[str], object],
    what: str,
) -> int:
    """Run tasks, a limited number at a time, and return the highest memory use of a worker."""
    left = iter(tasks)
    running: list[object] = []
    done = peak = 0
    while True:
        while len(running) < _MAX_SUBMITTED and (number := next(left, None)) is not None:
            running.append(submit(number))
        if not running:
            return peak
        finished, running = ray.wait(running, timeout=0.5)
        for one in finished:
            try:
                peak = max(peak, ray.get(one))
            except ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except ray.exceptions.RayError as error:
                raise MachineError(
                    f"a task failed on Ray: {error}",
                    ["finished tasks are kept; run the same command again to continue"],
                ) from None
            done += 1
        report(f"{what}: {done:,} finished, {len(running):,} submitted")


def on_slurm(recipe: _native.Recipe, out: str, *, memory: int) -> tuple[list[str], str]:
    """Submit arrays of tasks to Slurm, each after the one before it; return the jobs and what to do next."""
    if shutil.which("sbatch") is None:
        raise MachineError("`--on slurm` requires the command sbatch, which was not found on PATH")
    out = _everywhere(out)
    # The comment finds the jobs of a directory again.
    comment = f"brimful prepare {out}"
    active = _active_jobs(comment)
    if active:
        raise InputError(
            f"jobs {', '.join(active)} of an earlier command are still preparing {out}",
            [f"wait until they have ended, or cancel them with `scancel {' '.join(active)}`"],
        )
    coordinator = _native.TaskCoordinator(out, recipe)
    try:
        if coordinator.finished is not None:
            return [], f"{out} is prepared"
        tasks = coordinator.map_tasks()
    finally:
        coordinator.close()
    # Without the current directory, whose modules could have the names of ours.
    start = "import sys; sys.path[:] = [path for path in sys.path if path]; "
    start += "from brimful._prepare_task import main; sys.exit(main())"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(start)} {shlex.quote(out)} --memory {memory}"
    shared = [f"--mem={memory // (1 << 20) + 512}M", "--cpus-per-task=1", f"--comment={comment}"]
    # Without this, jobs after a failed one stay in the queue forever.
    shared += ["--kill-on-invalid-dep=yes"]
    # One element of the array takes every n-th task: arrays are limited to about 1,000 elements.
    elements = max(1, min(tasks, 1000))
    array = [f"--array=0-{elements - 1}"]
    logs = "the files slurm-*.out"
    if "://" not in out:
        # Not a file for each element in the current directory. `finish` removes them.
        folder = os.path.join(out, ".brimful-prepare", "logs")  # noqa: PTH118
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103
        array.append(f"--output={folder.replace('%', '%%')}/%x-%A_%a.out")
        logs = f"{folder} and slurm-*.out"
    submitted: list[str] = []

    def submit(name: str, words: str, *options: str) -> None:
        line = ["sbatch", "--parsable", f"--job-name=brimful-{name}", *shared, *options, f"--wrap={words}"]
        if submitted:
            line.insert(2, f"--dependency=afterok:{submitted[-1]}")
        try:
            done = subprocess.run(line, capture_output=True, text=True, check=True)  # noqa: S603
        except subprocess.CalledProcessError as error:
            if submitted:
                subprocess.run(["scancel", *submitted], check=False)  # noqa: S603,S607
            raise MachineError(f"sbatch failed: {error.stderr.strip()}") from None
        submitted.append(done.stdout.strip().split(";")[0])

    of = f"--element $SLURM_ARRAY_TASK_ID --of {elements}"
    submit("map", f"{command} map {of}", *array)
    submit("tails", f"{command} tails")
    submit("shard", f"{command} shard {of}", *array)
    submit("finish", f"{command} finish")
    return submitted, (
        f"submitted as jobs {', '.join(submitted)}; the last one writes manifest.json\n"
        f"follow them with `squeue --jobs {','.join(submitted)}`\n"
        f"if they end without manifest.json, read {logs} and run the same command again"
    )


def _active_jobs(comment: str) -> list[str]:
    """Return the jobs of this user that have a comment and have not ended."""
    if shutil.which("squeue") is None:
        return []
    line = ["squeue", "--me", "--noheader", "--format=%F %k"]
    listed = subprocess.run(line, capture_output=True, text=True, check=False).stdout  # noqa: S603
    jobs = (line.partition(" ") for line in listed.splitlines())
    return sorted({job for job, _, words in jobs if words == comment}, key=int)
