"""Values that a script without a parser has written into its calls, and where.

They cannot be changed from the outside; the user can make options of them.
"""

import functools
import inspect
import os
import sys

from brimful_accepts import hard_coded, json_value, report_problem
from brimful_imports import IMPORTS

_MAX_CALLS = 32

_OF_LOADER = ("batch_size", "num_workers", "prefetch_factor", "pin_memory")
_OF_TRAINER = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "dataloader_num_workers",
    "gradient_checkpointing",
    "bf16",
    "fp16",
    "max_steps",
    "num_train_epochs",
)
_OF_LIGHTNING = ("accumulate_grad_batches", "precision", "max_steps", "max_epochs")


def watch():
    """Look at these calls from now on."""
    for module, name, values in (
        ("torch.utils.data.dataloader", "DataLoader", _OF_LOADER),
        ("transformers.training_args", "TrainingArguments", _OF_TRAINER),
        ("lightning.pytorch.trainer.trainer", "Trainer", _OF_LIGHTNING),
        ("pytorch_lightning.trainer.trainer", "Trainer", _OF_LIGHTNING),
    ):
        IMPORTS.after(module, functools.partial(_watch, name, values), report_problem)


def _watch(name, values, module):
    kind = getattr(module, name)
    start = kind.__init__
    signature = inspect.signature(start)

    @functools.wraps(start)
    def made(*arguments, **keywords):
        try:
            _look(name, values, signature, arguments, keywords)
        except Exception as error:
            report_problem(f"{name}: {error!r}")
        return start(*arguments, **keywords)

    kind.__init__ = made


def _look(name, values, signature, arguments, keywords):
    place = _caller()
    if place is None or len(hard_coded) >= _MAX_CALLS:
        return
    given = signature.bind_partial(*arguments, **keywords).arguments
    given = {**given, **given.get("keywords", {})}
    found = {key: json_value(given[key]) for key in values if key in given}
    found = {key: value for key, value in found.items() if value is not None}
    call = {"call": name, "file": place[0], "line": place[1], "values": found}
    if found and call not in hard_coded:
        hard_coded.append(call)


def _caller():
    """Return the file and line of the script that makes the call; nothing if a library does."""
    frame = sys._getframe(3)
    # The __init__ of a dataclass, and of the script's own subclasses.
    while frame is not None and (
        frame.f_code.co_filename.startswith("<") or frame.f_code.co_name == "__init__"
    ):
        frame = frame.f_back
    if frame is None:
        return None
    path = os.path.abspath(frame.f_code.co_filename)
    here = os.path.join(os.getcwd(), "")
    if "site-packages" in path or "dist-packages" in path or not path.startswith(here):
        return None
    return path[len(here) :], frame.f_lineno
