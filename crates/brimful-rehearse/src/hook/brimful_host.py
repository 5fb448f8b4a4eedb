"""What the training takes of the host: measured inside of its processes, while it makes its steps.

The process that trains notes its memory when it starts to iterate over a loader, with the first batch and
after each step; a worker notes its own while it makes batches. Everything is read from /proc. Nothing here
reaches the script: a figure that cannot be had is left out.
"""

import ast
import contextlib
import functools
import json
import os
import sys
import sysconfig
import time
import warnings
import weakref

from brimful_common import FOLDER, OWN_TIME, PROCESSORS, guarded, open_private
from brimful_composition import PAGE, composition

# A worker looks at all of its pages after so many batches; each look takes up to a few ms.
LOOKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# How long the end of the rehearsal waits for the fresh interpreter that was started for comparison.
WAIT_SECONDS = 20.0
MAX_SOURCES = 2000


def status():
    """Anonymous, file, shared and highest bytes of this process."""
    found = {}
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith((b"VmHWM", b"RssAnon", b"RssFile", b"RssShmem")):
                name, value = line.split(b":")
                found[name.decode()] = int(value.split()[0]) * 1024
    return found


def anonymous():
    return status()["RssAnon"]


def forget_peak():
    """Start a new high-water mark."""
    with open("/proc/self/clear_refs", "wb") as file:
        file.write(b"5")


def peak():
    """The highest number of anonymous bytes since `forget_peak`.

    The kernel's mark is of all pages. Those of files hardly ever go away, so what is there now was at most
    there then.
    """
    now = status()
    return max(now["RssAnon"], now["VmHWM"] - now["RssFile"] - now["RssShmem"])


def private():
    """Anonymous bytes that no other process has."""
    found = {}
    with open("/proc/self/smaps_rollup", "rb") as file:
        for line in file:
            name, _, value = line.partition(b":")
            if value.endswith(b"kB\n"):
                found[name.decode()] = int(value.split()[0]) * 1024
    # Batches on their way count as private as long as nobody else has mapped them.
    shared = found["Rss"] and status()["RssShmem"]
    own_batches = max(0, 2 * found.get("Pss_Shmem", 0) - shared)
    return max(0, found["Private_Dirty"] - own_batches)


def tensors_in(batch, torch, depth=0):
    """The tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    if depth > 6:
        return []
    if isinstance(batch, dict) or hasattr(batch, "items"):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return [tensor for part in batch[:1000] for tensor in tensors_in(part, torch, depth + 1)]
    attributes = getattr(batch, "__dict__", None)
    return tensors_in(attributes, torch, depth + 1) if isinstance(attributes, dict) else []


def power_of_two(size):
    return 1 << max(0, size - 1).bit_length() if size else 0


class Loader:
    """One DataLoader and what was measured around it."""

    def __init__(self, loader):
        self.reference = weakref.ref(loader)
        self.workers = loader.num_workers
        self.prefetch = loader.prefetch_factor or 0
        self.pin_memory = bool(loader.pin_memory)
        self.persistent = bool(loader.persistent_workers)
        self.start_method = method_of(loader)
        self.micro_batch = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None) or 0
        self.facts = {}
        self.pids = []
        self.iterators = []
        self.beside = False

    def said(self):
        names = ("workers", "prefetch", "pin_memory", "persistent", "start_method", "micro_batch", "beside")
        return {**{name: getattr(self, name) for name in names}, **self.facts}


def method_of(loader):
    import multiprocessing

    context = loader.multiprocessing_context
    if context is not None:
        return context.get_start_method()
    # Not fixed before the script does so.
    fixed = multiprocessing.get_start_method(allow_none=True)
    return fixed or multiprocessing.get_all_start_methods()[0]


class HostWatch:
    """The host side of one process of the rehearsal."""

    def __init__(self, torch):
        self.torch = torch
        self.pid = os.getpid()
        self.problems = []
        self.loaders = []
        self.training = None  # the loader whose batches are trained on
        self.latest = None
        self.imported = anonymous()
        self.fresh = os.path.join(FOLDER, "host-fresh")
        self.children = []
        self.process = {}
        self.steps = 0
        self.trough = None
        self.saves = []
        self.largest = 0
        self.compute = []  # seconds between two batches
        self.batches = 0  # of the loader that is trained on
        self.handover = []
        self.given_at = None
        self.fetched = None
        forget_peak()

    def problem(self, text):
        if len(self.problems) < 8:
            self.problems.append(text)

    # --- hooks ---

    def install(self):
        from torch.utils.data import _utils, dataloader

        self.watch_loaders(dataloader)
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            self.watch_fetcher(getattr(_utils.fetch, name))
        self.watch_saving()

    def watch_loaders(self, dataloader):
        watch = self
        for kind in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
            self.watch_iterator(kind)
        following = dataloader._BaseDataLoaderIter.__next__

        def next_one(iterator):
            began = watch.before_batch()
            batch = following(iterator)
            watch.after_batch(iterator, batch, began)
            return batch

        dataloader._BaseDataLoaderIter.__next__ = next_one
        making = dataloader.DataLoader.__init__

        @functools.wraps(making)
        def made(loader, *arguments, **named):
            making(loader, *arguments, **named)
            watch.known(loader)

        dataloader.DataLoader.__init__ = made

    def watch_iterator(self, kind):
        watch = self
        making = kind.__init__

        @functools.wraps(making)
        def made(iterator, loader, *arguments, **named):
            watch.starting(loader)
            making(iterator, loader, *arguments, **named)
            watch.started(loader, iterator)

        kind.__init__ = made

    def watch_fetcher(self, kind):
        watch = self
        fetching = kind.fetch

        @functools.wraps(fetching)
        def fetch(fetcher, indices):
            began = watch.before_fetch()
            data = fetching(fetcher, indices)
            watch.after_fetch(began, indices)
            return data

        kind.fetch = fetch

    def watch_saving(self):
        saving = self.torch.save

        @functools.wraps(saving)
        def save(*arguments, **named):
            before = self.before_save()
            try:
                return saving(*arguments, **named)
            finally:
                self.after_save(before)

        self.torch.save = save

    # --- loaders ---

    def is_main(self):
        return os.getpid() == self.pid and self.torch.utils.data.get_worker_info() is None

    @guarded
    def known(self, loader):
        for known in self.loaders:
            if known.reference() is loader:
                return known
        if len(self.loaders) < 20:
            self.loaders.append(Loader(loader))
        return self.loaders[-1]

    @guarded
    def starting(self, loader):
        """A loop over a loader begins: the dataset is there, its workers are not."""
        if not self.is_main():
            return
        known = self.known(loader)
        for other in self.loaders:
            if other is not known and any(alive(iterator) for iterator in other.iterators):
                known.beside = True
        if "main_at_start" in known.facts:
            return
        known.facts["build_peak"] = peak()
        known.facts["main_at_start"] = anonymous()
        known.facts["samples"] = length_of(loader.dataset)
        known.facts["composition"] = self.look_at(loader)
        forget_peak()

    def look_at(self, loader):
        """Tell what its dataset is made of; the same dataset is looked at once."""
        for other in self.loaders:
            seen = other.reference()
            if seen is not None and seen.dataset is loader.dataset and "composition" in other.facts:
                return other.facts["composition"]
        return self.in_a_child(loader.dataset)

    def in_a_child(self, dataset):
        """Look in a process of its own: what it allocates would change how malloc serves the script.

        The child ends as a fresh interpreter with the script's imports and nothing else, as a new worker
        would be.
        """
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of fork where there are threads
            child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                with os.fdopen(writing, "w") as file:
                    json.dump(composition(dataset, self.torch), file)
                self.become_fresh()
            finally:
                os._exit(0)
        os.close(writing)
        self.children.append(child)
        with os.fdopen(reading) as file:
            said = file.read()
        return json.loads(said) if said else None

    @guarded
    def started(self, loader, iterator):
        if not self.is_main():
            return
        known = self.known(loader)
        known.iterators = [weakref.ref(iterator)]
        if "main_after_start" in known.facts:
            return
        known.facts["start_peak"] = peak()
        known.facts["main_after_start"] = anonymous()
        known.pids = [worker.pid for worker in getattr(iterator, "_workers", [])]

    @guarded
    def before_batch(self):
        if self.given_at is not None and self.steps > 0:
            given_at, own = self.given_at
            spent = time.perf_counter() - given_at - (OWN_TIME.so_far() - own)
            self.compute.append(max(spent, 0.0))
        self.given_at = None
        return time.process_time()

    @guarded
    def after_batch(self, iterator, batch, began):
        if began is not None and getattr(iterator, "_num_workers", 0):
            # Processor time: how long it waits depends on how busy the workers are, and they work beside it.
            self.handover.append(time.process_time() - began)
        self.given_at = (time.perf_counter(), OWN_TIME.so_far())
        known = next((k for k in self.loaders if any(ref() is iterator for ref in k.iterators)), None)
        self.latest = known
        self.batches += known is not None and known is self.training
        if known is None or "batch_bytes" in known.facts:
            return
        tensors = tensors_in(batch, self.torch)
        sizes = [tensor.nbytes for tensor in tensors]
        known.facts["batch_bytes"] = sum(sizes)
        known.facts["batch_shm_bytes"] = sum(-(-size // PAGE) * PAGE for size in sizes)
        known.facts["batch_pinned_bytes"] = sum(power_of_two(size) for size in sizes)
        if not known.micro_batch and tensors and tensors[0].dim():
            known.micro_batch = tensors[0].shape[0]
        known.facts["main_at_first_batch"] = anonymous()
        known.facts["main_shm_at_first_batch"] = status()["RssShmem"]
        if self.training is None:
            forget_peak()

    # --- steps and saving ---

    @guarded
    def after_step(self, optimizer):
        if not self.is_main():
            return
        self.steps += 1
        if self.training is None:
            self.training = self.latest
            if self.process.get("before_training") is None:
                # What came before is not of the steps: it counts from the first batch on.
                self.process = {"peak": 0, "before_training": self.process.get("peak", 0)}
        self.process["peak"] = max(self.process.get("peak", 0), peak())
        if self.steps <= 1:
            self.largest = largest_of(optimizer)
        self.trough = anonymous()

    @guarded
    def before_save(self):
        if self.is_main():
            before = anonymous()
            self.keep_peak()
            return before
        return None

    @guarded
    def after_save(self, before):
        if before is not None:
            self.saves.append(max(0, peak() - before))

    # --- data that is made ---

    @guarded
    def before_fetch(self):
        if self.fetched is None or self.fetched["pid"] != os.getpid():
            self.first_fetch()
        if self.fetched["worker"]:
            forget_peak()
        else:
            self.keep_peak()
            self.fetched["anon"] = anonymous()
        return time.process_time()

    def keep_peak(self):
        """Start a new high-water mark without losing that of the steps."""
        self.process["peak"] = max(self.process.get("peak", 0), peak())
        forget_peak()

    def first_fetch(self):
        worker = self.torch.utils.data.get_worker_info() is not None
        anon = anonymous()
        self.fetched = {"pid": os.getpid(), "worker": worker, "anon": anon, "start_peak": peak()}
        self.fetched.update(batches=0, samples=0, seconds=0.0, fetch_peak=0, seen=[])
        if worker:
            self.fetched["private"] = private()
            forget_peak()

    @guarded
    def after_fetch(self, began, indices):
        spent = time.process_time() - began
        fetched = self.fetched
        fetched["batches"] += 1
        n_samples = len(indices) if isinstance(indices, (list, tuple)) else 1
        fetched["samples"] += n_samples
        if fetched["batches"] > 1:
            # The first one also loads and warms up.
            fetched["seconds"] += spent
            fetched["timed"] = fetched.get("timed", 0) + n_samples
        else:
            fetched["first_seconds"] = spent
        now, highest = anonymous(), peak()
        fetched["fetch_peak"] = max(fetched["fetch_peak"], highest - fetched["anon"])
        # Gone again when the batch was made.
        fetched["passing"] = min(fetched.get("passing", highest), highest - now)
        if not fetched["worker"]:
            return
        if fetched["batches"] in LOOKS:
            fetched["seen"].append([fetched["samples"], private(), now])
            self.put(f"host-worker-{os.getpid()}", fetched)

    def put(self, name, said):
        path = os.path.join(FOLDER, name)
        with open(path + ".part", "w", encoding="utf-8", opener=open_private) as file:
            json.dump(said, file)
        os.replace(path + ".part", path)

    # --- a fresh interpreter ---

    def become_fresh(self):
        """Start Python anew, without the phantom, so that it holds what the real libraries take."""
        try:
            lock = os.open(self.fresh + ".lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            return
        os.write(lock, str(os.getpid()).encode())
        os.close(lock)
        removed = ("BRIMFUL_", "LD_PRELOAD", "PYTHONPATH", "TRITON_LIBCUDA_PATH")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
        environment["CUDA_VISIBLE_DEVICES"] = ""
        # Those of the script, without ours.
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        code = FRESH.format(out=self.fresh, imports=imports_of_main())
        leave_stage()
        os.execve(sys.executable, [sys.executable, "-c", code], environment)  # noqa: S606

    def fresh_found(self):
        """What the fresh interpreter takes; waits for it."""
        until = time.monotonic() + WAIT_SECONDS
        while os.path.exists(self.fresh + ".lock") and time.monotonic() < until:
            if os.path.exists(self.fresh):
                with open(self.fresh, encoding="utf-8") as file:
                    return json.load(file)
            if not self.is_starting():
                break
            time.sleep(0.02)
        return {}

    def is_starting(self):
        """Whether the fresh interpreter runs; another process may have started it, for another card."""
        for child in self.children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        try:
            with open(self.fresh + ".lock", encoding="utf-8") as file:
                os.kill(int(file.read() or os.getpid()), 0)
        except ProcessLookupError:
            return os.path.exists(self.fresh)
        return True

    # --- the end ---

    def facts(self):
        """Everything that was measured."""
        try:
            return self.all_facts()
        except Exception as error:
            self.problem(f"facts: {error!r}")
            return {"problems": self.problems}

    def all_facts(self):
        training = self.training or self.latest
        said = {
            "imported": self.imported,
            "on_processors": PROCESSORS,
            "fresh": self.fresh_found(),
            "peak": max(self.process.get("peak", 0), peak() if not self.saves else 0),
            "trough": self.trough or 0,
            "saves": self.saves,
            "largest_tensor": self.largest,
            "ranks": int(os.environ.get("LOCAL_WORLD_SIZE", "1") or "1"),
            "steps": self.steps,
            "compute_seconds": middle(self.compute),
            "handover_seconds": middle(self.handover),
            "problems": self.problems,
        }
        if self.fetched is not None and not self.fetched["worker"]:
            said["fetched"] = self.fetched
        if training is not None:
            said["loader"] = training.said()
            said["loader"]["measured_workers"] = self.measured(training.pids)
            said["others"] = [loader.said() for loader in self.loaders if loader is not training]
        return said

    def measured(self, pids):
        found = []
        for pid in pids:
            path = os.path.join(FOLDER, f"host-worker-{pid}")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    found.append(json.load(file))
        return found


FRESH = """
import json, os, sys
def anon():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("RssAnon"))
import torch
after_torch = anon()
import torch.utils.data, multiprocessing.spawn, multiprocessing.queues
for line in {imports!r}:
    try:
        exec(line, {{"__name__": "__mp_main__"}})
    except BaseException:
        pass
torch.set_num_threads(1)
torch.manual_seed(1)
with open({out!r} + ".part", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
    json.dump({{"torch": after_torch, "program": anon()}}, file)
os.replace({out!r} + ".part", {out!r})
"""


def leave_stage():
    """Let the redirecting library, where it is loaded, give neither phantom nor hook to what starts now."""
    import ctypes

    leave = getattr(ctypes.CDLL(None), "brimful_redirect_leave_stage", None)
    if leave is not None:
        leave()


def imports_of_main():
    """The import lines at the top of the script: what a worker that is not forked imports again."""
    path = file_of(sys.modules.get("__main__"))
    if not path or os.path.getsize(path) > 1 << 20:
        return []
    with open(path, "rb") as file:
        tree = ast.parse(file.read())
    found, bodies = [], [tree.body]
    while bodies:
        for node in bodies.pop():
            if isinstance(node, (ast.Import, ast.ImportFrom)) and not getattr(node, "level", 0):
                found.append(ast.unparse(node))
            elif isinstance(node, ast.Try):
                bodies.append(node.body)
    return found


def alive(reference):
    iterator = reference()
    return iterator is not None and any(worker.is_alive() for worker in getattr(iterator, "_workers", []))


def length_of(dataset):
    try:
        return len(dataset)
    except Exception:
        return 0


def largest_of(optimizer):
    """Bytes of the largest parameter: torch.save copies those of a card one at a time."""
    groups = getattr(optimizer, "param_groups", ())
    sizes = [p.nbytes for group in groups for p in group["params"]]
    return max(sizes, default=0)


def middle(values):
    values = sorted(values)
    return values[len(values) // 2] if values else None


def file_of(module):
    """Where a module was loaded from, without asking it: one that imports lazily would begin to, or fail."""
    try:
        return vars(module).get("__file__")
    except TypeError:
        return None


def sources():
    """Python files of the script itself and torch's version: nothing else of libraries."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.add(os.path.dirname(os.path.abspath(__file__)))
    folders = tuple(os.path.realpath(folder) + os.sep for folder in folders if folder)
    found = set()
    for module in list(sys.modules.values()):
        path = file_of(module)
        if not isinstance(path, str) or not path.endswith(".py") or not os.path.isfile(path):
            continue
        path = os.path.realpath(path)
        parts = path.split(os.sep)
        if path.startswith(folders) or "site-packages" in parts or "dist-packages" in parts:
            continue
        found.add(path)
    # Another torch is another rehearsal.
    release = file_of(sys.modules.get("torch.version"))
    return ([release] if release else []) + sorted(found)[:MAX_SOURCES]
