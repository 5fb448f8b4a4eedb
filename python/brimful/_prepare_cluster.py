"""Tasks of a preparation on a Ray cluster or in a Slurm array, instead of threads of this process."""

from __future__ import annotations

import functools
import json
import os
import resource
import shlex
import shutil
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
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise MachineError(
                    f"cannot connect to a Ray cluster: {error}",
                    ["check RAY_ADDRESS and the cluster's authentication, or leave out `--on ray`"],
                ) from None
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


def on_slurm(recipe: _native.Recipe, out: str, *, memory: int) -> str:
    """Submit arrays of tasks to Slurm, each after the one before it, and return what to do next."""
    if shutil.which("sbatch") is None:
        raise MachineError("`--on slurm` requires the command sbatch, which was not found on PATH")
    out = _everywhere(out)
    coordinator = _native.TaskCoordinator(out, recipe)
    try:
        if coordinator.finished is not None:
            return f"{out} is prepared"
        tasks = coordinator.map_tasks()
    finally:
        coordinator.close()
    python = shlex.quote(sys.executable)
    command = f"{python} -m brimful._prepare_task {shlex.quote(out)} --memory {memory}"
    size = f"--mem={memory // (1 << 20) + 512}M"
    # One element of the array takes every n-th task: arrays are limited to about 1,000 elements.
    elements = max(1, min(tasks, 1000))
    array = f"--array=0-{elements - 1}"

    def submit(name: str, words: str, *options: str) -> str:
        line = ["sbatch", "--parsable", f"--job-name=brimful-{name}", "--cpus-per-task=1", size, *options]
        line += [f"--wrap={words}"]
        try:
            done = subprocess.run(line, capture_output=True, text=True, check=True)  # noqa: S603
        except subprocess.CalledProcessError as error:
            raise MachineError(f"sbatch failed: {error.stderr.strip()}") from None
        return done.stdout.strip().split(";")[0]

    of = f"--element $SLURM_ARRAY_TASK_ID --of {elements}"
    mapped = submit("map", f"{command} map {of}", array)
    tails = submit("tails", f"{command} tails", f"--dependency=afterok:{mapped}")
    shards = submit("shard", f"{command} shard {of}", array, f"--dependency=afterok:{tails}")
    finish = submit("finish", f"{command} finish", f"--dependency=afterok:{shards}")
    return f"submitted as jobs {mapped}, {tails}, {shards} and {finish}; the last one writes manifest.json"
