"""Prints a lower bound of a training's GPU memory, counted from its tensors and not from the allocator.

With this directory on PYTHONPATH, a script prints `lower bound: BYTES` to its standard error after each step
of an optimizer of PyTorch: weights and optimizer state, and the larger of the gradients and the largest
output of a module. Torch is imported before the script asks for it, so use this for a run of its own.
"""

import sys
import weakref

largest_output = [0]
optimizers = weakref.WeakSet()


def storages(tensors: list) -> int:
    """Bytes of distinct storages on a GPU."""
    found = {}
    for tensor in tensors:
        local = getattr(tensor, "_local_tensor", tensor)
        if getattr(local, "is_cuda", False):
            storage = local.untyped_storage()
            found[storage._cdata] = storage.nbytes()
    return sum(found.values())


def note_output(_module: object, _inputs: object, output: object) -> None:
    """Remember the largest tensor that a module gave."""
    if getattr(output, "is_cuda", False) and output.requires_grad:
        largest_output[0] = max(largest_output[0], output.numel() * output.element_size())


def report(optimizer: object, *_: object) -> None:
    """Print the bound after a step."""
    optimizers.add(optimizer)
    parameters, gradients, states = [], [], []
    for one in optimizers:
        for group in one.param_groups:
            parameters += group["params"]
            gradients += [p.grad for p in group["params"] if p.grad is not None]
        for state in one.state.values():
            states += [value for value in state.values() if hasattr(value, "untyped_storage")]
    bound = storages(parameters) + storages(states) + max(storages(gradients), largest_output[0])
    sys.stderr.write(f"lower bound: {bound}\n")
    sys.stderr.flush()


try:
    from torch.nn.modules.module import register_module_forward_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook
except ImportError:  # a program without torch
    pass
else:
    register_module_forward_hook(note_output)
    # Before brimful's own, which ends the script after the last step.
    register_optimizer_step_post_hook(report)
