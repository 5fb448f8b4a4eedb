"""The hook inside a training process: optimizer steps, loaders, the GPU, and how it ended.

Changes no tensor, starts nothing, prints nothing, waits for nothing. Costs one call and one store per
optimizer step, and at most twice a second a look at the allocator's statistics.
"""

import atexit
import os
import sys
import threading
import time
import weakref
from functools import wraps

from brimful_gauge import EPOCHS, STEPS, count, guarded, page, text
from brimful_gpu import Gpu

# Between two looks at the allocator.
INTERVAL = 0.5
MAX_LOADERS = 1000
MAX_FRAMES = 500
FOLDER_OF_HOOK = os.path.dirname(__file__)
# Of one loader: worker processes that come anew with each epoch are on the page, which does not fill up.
MAX_LINES_OF_A_LOADER = 10


def install(torch):
    """Put everything in place. Called once per interpreter, when torch has been imported."""
    inside = Inside(torch)
    page.announcement = {"version": text(torch.__version__), "cuda": torch.version.cuda}
    if not is_started_by_multiprocessing():
        page.announce()
    # Each on its own: what one torch does not have must not cost the rest.
    guarded(inside.watch_steps)()
    guarded(inside.watch_loaders)()
    guarded(inside.watch_modes)()
    inside.gpu.install()
    guarded(inside.watch_end)()
    os.register_at_fork(after_in_child=inside.forget)


def is_started_by_multiprocessing():
    """Most of these are DataLoader workers with nothing to tell. A rank speaks at its first step."""
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return False
    starting = getattr(process.current_process(), "_inheriting", False)
    return starting or process.parent_process() is not None


class Inside:
    """What is known of this process."""

    def __init__(self, torch):
        self.torch = torch
        self.gpu = Gpu(torch, self.is_evaluating)
        self.loaders = []
        self.due = 0.0
        self.ended = False
        self.mode = None  # of the last module that was told: training or not
        self.steps_at_iteration = None  # when the newest iterator of a loader was made

    @guarded
    def forget(self):
        """This is a forked child: what its parent counted is the parent's."""
        announcement = page.announcement
        page.forget()
        page.announcement = announcement
        self.gpu.forget()
        self.loaders = []
        self.due = 0.0
        self.steps_at_iteration = None

    def is_worker(self):
        data = sys.modules.get("torch.utils.data")
        return data is not None and data.get_worker_info() is not None

    # --- optimizer steps ---

    def watch_steps(self):
        """Have every step counted, of every optimizer.

        Two kinds of steps are not: those that are compiled as a whole, and, in some PyTorch before 2.9, those
        of its own optimizers once torch.compile is in use: it takes the hooks away from their classes.
        """
        import torch.optim.optimizer as module

        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is not None:
            register(self.step_hook())
        else:
            self.patch_steps(module.Optimizer)

    def step_hook(self):
        clock = time.monotonic
        # A compiled step is traced through its hooks: there must be nothing in them then.
        is_compiling = getattr(getattr(self.torch, "compiler", None), "is_compiling", None)

        def after_step(_optimizer, _args, _kwargs):
            if is_compiling is not None and is_compiling():
                return
            words = page.words
            if words is not None:
                words[STEPS] += 1
                if clock() < self.due:
                    return
            self.after_a_while(words is None)

        return after_step

    def patch_steps(self, base):
        """PyTorch before 2.0 has no hook for all optimizers, but one place that wraps each class's step."""
        place = next(name for name in ("_patch_step_function", "_hook_for_profile") if hasattr(base, name))
        prepare = getattr(base, place)
        after_step = self.step_hook()

        @guarded
        def count_steps_of(kind):
            step = kind.step
            if getattr(step, "_brimful_counts", False):
                return

            @wraps(step)
            def stepping(*args, **kwargs):
                result = step(*args, **kwargs)
                after_step(None, None, None)
                return result

            stepping.hooked = True
            stepping._brimful_counts = True
            kind.step = stepping

        @wraps(prepare)
        def preparing(optimizer):
            prepare(optimizer)
            count_steps_of(type(optimizer))

        setattr(base, place, preparing)

    @guarded
    def after_a_while(self, is_first):
        self.due = time.monotonic() + INTERVAL
        if is_first:
            words = None if page.tried or self.is_worker() else page.open()
            if words is None:
                return
            words[STEPS] += 1
        page.put(self.gpu.look() or {})

    # --- loaders ---

    def watch_loaders(self):
        from torch.utils.data import DataLoader

        iterate = DataLoader.__iter__

        @wraps(iterate)
        def iterating(loader):
            iterator = iterate(loader)
            self.note_loader(loader, iterator)
            return iterator

        DataLoader.__iter__ = iterating

    @guarded
    def note_loader(self, loader, iterator):
        if self.is_worker():
            return
        known = self.know(loader)
        if known is None:
            return
        known.iterator = weakref.ref(iterator)
        known.epochs += 1
        self.steps_at_iteration = self.steps()
        pids = worker_pids(iterator)
        # With persistent workers an iterator is the same again.
        is_news = known.pids is None or pids != known.pids
        known.pids = pids
        page.put({EPOCHS: self.epochs()}, self.workers())
        if is_news and known.lines < MAX_LINES_OF_A_LOADER:
            known.lines += 1
            page.tell("loader", known.facts(loader, iterator))

    def know(self, loader):
        """What is known of a loader. One made anew for each epoch goes on where the last one ended."""
        key = (id(loader.dataset), batch_size(loader), loader.num_workers)
        known = next((known for known in self.loaders if known.reference() is loader), None)
        if known is None:
            same = (known for known in self.loaders if known.key == key and known.iterator() is None)
            known = next(same, None)
        if known is None and len(self.loaders) < MAX_LOADERS:
            known = KnownLoader(len(self.loaders), key, loader)
            self.loaders.append(known)
        if known is not None:
            known.reference = weakref.ref(loader)
        return known

    def epochs(self):
        """Those of the loader with the most batches; of the first of them where several have as many."""
        return max(self.loaders, key=lambda known: known.n_batches).epochs

    def workers(self):
        """Those of the newest iterator of each loader: (pid, loader, worker). The page may not hold all."""
        return [
            (pid, known.number, worker)
            for known in reversed(self.loaders)
            if known.iterator() is not None
            for worker, pid in enumerate(known.pids or ())
        ]

    # --- training or evaluating ---

    def watch_modes(self):
        """Have `train()` and `eval()` of modules noted: a store per module, where an epoch begins or ends."""
        from torch.nn import Module

        train = Module.train

        @wraps(train)
        def noting(module, *arguments, **named):
            mode = arguments[0] if arguments else named.get("mode", True)
            if mode is True or mode is False:
                self.mode = mode
            return train(module, *arguments, **named)

        Module.train = noting

    def steps(self):
        return 0 if page.words is None else page.words[STEPS]

    @guarded
    def is_evaluating(self):
        """Whether the thread that is here right now evaluates: True, False, or None where it cannot be told.

        No variable of any frame is looked at: that would keep tensors alive.
        """
        no_gradients = not self.torch.is_grad_enabled()
        if not no_gradients and self.mode is not False:
            return False
        kind = kind_of_thread()
        if kind != "script":
            return False
        # A teacher evaluates too, in the middle of training: then steps were made with this loader's batches.
        if self.mode is False and self.steps_at_iteration == self.steps():
            return True if no_gradients else None
        return None

    # --- the end ---

    def watch_end(self):
        """By its end Python has left in sys the exception that ends it, whoever owns sys.excepthook."""
        atexit.register(self.note_end)
        # Runs before the threads that are still at work are waited for, which may take forever.
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            register(self.note_end)

    @guarded
    def note_end(self):
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        # A session goes on after an exception: it is not what ended it.
        if error is None or self.ended or hasattr(sys, "ps1") or "IPython" in sys.modules:
            return
        self.ended = True
        kind = type(error)
        message = text(error)
        if kind.__name__ == "OutOfMemoryError":
            self.gpu.tell_untold(message)
            self.gpu.tell_unobserved(message)
        page.tell("exception", {"type_name": name_of(kind), "message": message}, last=True)


class KnownLoader:
    """A DataLoader that has been made into an iterator."""

    def __init__(self, number, key, loader):
        self.number = number
        self.key = key
        self.reference = weakref.ref(loader)
        self.iterator = lambda: None  # a weak reference to the newest
        self.epochs = 0
        self.pids = None
        self.lines = 0
        self.n_samples = n_samples(loader)
        # A stream without a length is taken for the longest.
        self.n_batches = (
            float("inf") if self.n_samples is None else self.n_samples / (batch_size(loader) or 1)
        )

    def facts(self, loader, iterator):
        most = (1 << 32) - 1
        return {
            "loader": self.number,
            "n_workers": count(loader.num_workers, most) or 0,
            "batch_size": batch_size(loader),
            "prefetch_factor": count(loader.prefetch_factor, most) if loader.num_workers else None,
            "pin_memory": bool(loader.pin_memory),
            "persistent_workers": bool(loader.persistent_workers),
            "start_method": start_method(iterator),
            "dataset": name_of(type(loader.dataset)),
            "n_samples": self.n_samples,
            "worker_pids": self.pids,
        }


def kind_of_thread():
    """What Python the thread that is here runs: none (one of autograd's, in a backward pass), an optimizer's
    step, or anything else."""
    frame, depth, is_script = sys._getframe(), 0, False
    while frame is not None and depth < MAX_FRAMES:
        code = frame.f_code
        if os.path.dirname(code.co_filename) != FOLDER_OF_HOOK:
            is_script = True
            if code.co_name == "step" and os.sep + "optim" + os.sep in code.co_filename:
                return "optimizer"
            if code.co_name == "backward" and code.co_filename.endswith("_tensor.py"):
                return "backward"
        frame, depth = frame.f_back, depth + 1
    return "script" if is_script else "autograd"


def name_of(kind):
    name = kind.__qualname__
    return text(name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}", 200)


def batch_size(loader):
    """What frameworks put in place of the user's loader has it in its sampler alone."""
    size = loader.batch_size
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return count(size, (1 << 32) - 1)


def n_samples(loader):
    """The length of the dataset. Not asked of a stream: PyTorch would warn if it turned out to be wrong."""
    from torch.utils.data import IterableDataset

    if isinstance(loader.dataset, IterableDataset) or not hasattr(type(loader.dataset), "__len__"):
        return None
    try:
        return count(len(loader.dataset))
    except Exception:
        return None


def worker_pids(iterator):
    return [worker.pid for worker in getattr(iterator, "_workers", ()) if worker.pid]


def start_method(iterator):
    workers = getattr(iterator, "_workers", ())
    if not workers:
        return None
    method = getattr(workers[0], "_start_method", None)
    if method is None:
        import multiprocessing

        method = multiprocessing.get_start_method(allow_none=True)
    return method
