"""Train described models on the phantom GPU, one after the other, and tell the peaks.

One job as JSON per line of the standard input, one result as JSON per line of the standard output. A job is
{"program": "timm", "settings": {...}}; the programs are the functions of `PROGRAMS`. Each does what a
user's script would do and yields after each step; here only the allocator's counters are read. A result has
`allocated_bytes` and `reserved_bytes`, the peaks over all steps, or `oom`, or `skip` with a reason. With
the setting `capture` the last step's operators are in `step`, as a rehearsal captures them.
"""

import contextlib
import gc
import json
import os
import sys
import time

# A line for every failed allocation otherwise.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import images  # also finds the hook's modules
import language
import litgpt
import nvidia
import perceptrons
import torch
from quick import Skip

PROGRAMS = {
    "timm": images.timm_training,
    "timm_benchmark": images.timm_benchmark,
    "timm_inference": images.timm_inference,
    "nvidia_convnet": images.nvidia_convnet,
    "nvidia_bert": language.nvidia_bert,
    "nvidia_example": nvidia.nvidia_example,
    "torchvision": images.torchvision_training,
    "transformers": language.transformers_training,
    "neusight": language.neusight_run,
    "mlp": perceptrons.mlp_training,
    "attention": language.attention_forward,
    "litgpt": litgpt.litgpt_run,
}


def measure(job: dict) -> dict:
    """Run one job from a clean allocator."""
    start = time.monotonic()
    gc.collect()
    # The workspaces of cuBLAS are blocks of the allocator too, and stay.
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    before = torch.cuda.memory_allocated()
    facts = {}
    reserved = []
    result = {}
    try:
        for fact in steps_of(job, result):
            if fact is not None:
                facts.update(fact)
            reserved.append(torch.cuda.memory_reserved())
    except torch.cuda.OutOfMemoryError:
        result["oom"] = True
    except Skip as skip:
        result["skip"] = str(skip)
    except Exception as error:  # noqa: BLE001 - a model that cannot be built is a row left out, with its reason
        result["skip"] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    statistics = torch.cuda.memory_stats()
    result |= {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "allocated_now_bytes": facts.pop("allocated_now_bytes", torch.cuda.memory_allocated()),
        "reserved_by_step": reserved,
        "left_over_bytes": before,
        "retries": statistics.get("num_alloc_retries", 0),
        "seconds": round(time.monotonic() - start, 2),
        **facts,
    }
    return result


def steps_of(job: dict, result: dict):
    """Run the program; the operators of its last step go into the result."""
    running = PROGRAMS[job["program"]](job["settings"])
    if not job["settings"].get("capture"):
        yield from running
        return
    for _ in range(job["settings"]["steps"]):
        yield next(running)
    with captured() as capture:
        yield next(running)
    result["step"] = {
        **capture.facts(),
        "matmul_tf32": torch.backends.cuda.matmul.allow_tf32,
        "convolution_tf32": torch.backends.cudnn.allow_tf32,
    }


@contextlib.contextmanager
def captured():
    """Look at every operator; the phase is known by the optimizer's hooks and by autograd's own number."""
    from brimful_ops import Capture
    from torch.optim import optimizer

    stepping = []
    hooks = (
        optimizer.register_optimizer_step_pre_hook(lambda *_: stepping.append(1)),
        optimizer.register_optimizer_step_post_hook(lambda *_: stepping.clear()),
    )

    def phase() -> str:
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "optimizer" if stepping else "forward"

    try:
        with Capture(phase) as capture:
            yield capture
    finally:
        for hook in hooks:
            hook.remove()


def main() -> None:
    """Answer jobs until the input ends."""
    out = os.fdopen(os.dup(1), "w")
    # Whatever a library prints must not stand between the answers.
    os.dup2(2, 1)
    torch.cuda.init()
    out.write(json.dumps({"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}) + "\n")
    out.flush()
    for line in sys.stdin:
        job = json.loads(line)
        out.write(json.dumps({"id": job["id"], **measure(job)}) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
