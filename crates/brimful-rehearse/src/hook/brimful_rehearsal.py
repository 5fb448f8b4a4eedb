"""The rehearsal inside of the training process.

Notes where forward, backward, optimizer and evaluation begin, which module is at work, and after the asked
number of optimizer steps writes what PyTorch's allocator recorded and ends the process. It changes no tensor.
Its parts: one process per card (`brimful_branches`), what a phantom cannot know (`brimful_substitutes`),
on to evaluation and saving (`brimful_onward`), memory of the host (`brimful_host`), the operators of a step
(`brimful_capture`).

What it writes into the folder BRIMFUL_REHEARSAL, for each process that used the GPU:
    PID.snapshot   the allocator's own snapshot (pickle, as torch.cuda.memory._dump_snapshot writes it)
    PID.json       marks, names of tensors, figures to check against
                   (PID-DEVICE for each device if it used several)
    PID.ops        the operators of one more step (JSON, `brimful_capture`)
    progress       one JSON line per thing worth telling, from all processes
"""

import atexit
import collections
import contextlib
import functools
import json
import os
import pickle
import sys
import threading

from brimful_branches import Branches
from brimful_capture import Capture
from brimful_common import (
    EVALUATION_BATCHES,
    FOLDER,
    PROCESSORS,
    STEPS,
    WITH,
    WITHOUT_CUDA,
    Known,
    announce_to_phantom,
    guarded,
    load_part,
    open_private,
    phantom_is_loaded,
    pretend_no_cuda,
    tell,
)
from brimful_host import HostWatch, sources
from brimful_inductor import CompiledKernels
from brimful_onward import Onward
from brimful_stack import StackReporter
from brimful_steps import Steps, StepsByScript, parameters_of
from brimful_substitutes import Substitutes
from brimful_torch import ENVIRONMENT_ERROR, TorchWatch
from brimful_values import Values

MAX_EVENTS = 20_000_000
# Different places in the script that a caveat names.
MAX_CAVEAT_TEXTS = 3
# Each needs those before it.
FALLBACK_PARTS = (
    "brimful_ledger",
    "brimful_attention",
    "brimful_guard",
    "brimful_reduce",
    "brimful_fake_cuda",
    "brimful_mended",
    "brimful_fake",
    "brimful_fallback",
)
# Parts of a module's name that wrappers put in; the user never wrote them.
WRAPPERS = {"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"}


def wait_for_torch():
    """Call `Rehearsal.install` when torch has been imported."""
    several = local_world_size()
    stand_for_all_nodes()
    devices = os.environ.get("BRIMFUL_PHANTOM_DEVICES", "")
    if WITHOUT_CUDA:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if several > 1 and ";" not in devices:
        # A launcher such as torchrun has started several processes: each has a card of its own.
        os.environ["BRIMFUL_PHANTOM_DEVICES"] = ";".join([devices] * min(several, 16))
    TorchWatch(lambda torch: rehearsal_for(torch).install()).start()


def stand_for_all_nodes():
    """Let the ranks of this node see all ranks of a job on several nodes. Collectives return at once."""
    if "LOCAL_RANK" not in os.environ or "RANK" not in os.environ:
        return  # the launcher
    # Removed, so that the processes of a rank do not count the nodes again.
    nodes = int(os.environ.pop("BRIMFUL_REHEARSAL_NODES", "1"))
    for name in ("WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"):
        if nodes > 1 and os.environ.get(name, "").isdigit():
            os.environ[name] = str(int(os.environ[name]) * nodes)


def local_world_size():
    """How many processes a launcher has started on this machine."""
    own = os.environ.get("LOCAL_WORLD_SIZE")
    if not own and os.environ.get("LOCAL_RANK"):
        # DeepSpeed's launcher gives only the number of all processes.
        own = os.environ.get("WORLD_SIZE")
    return int(own or "1")


def rehearsal_for(torch):
    """On the phantom, without CUDA on tensors that have only shapes, or on the processors."""
    if PROCESSORS:
        return load_part("brimful_processors").OnProcessors(torch)
    if WITHOUT_CUDA:
        pretend_no_cuda(torch)
    if torch.version.cuda or torch.version.hip:
        return Rehearsal(torch)
    for name in FALLBACK_PARTS:
        load_part(name)
    return sys.modules["brimful_fallback"].Fallback(torch)


class Rehearsal(Branches, Substitutes, Values, Onward, Steps, CompiledKernels, Capture):
    """One training process under observation."""

    def __init__(self, torch):
        self.torch = torch
        self.pid = os.getpid()
        self.marks = []  # [events so far on each of `devices`, kind, text]
        self.devices = []  # those in use, in the order of their first use
        self.unused = []
        self.before_reset = {}  # device -> events and OOMs that the script has reset to zero
        self.phase = "setup"
        self.inside_optimizer = 0
        self.names = Known()  # names of modules
        self.roots = Known()
        self.stack = []  # names of the modules at work (main thread)
        self.main_thread = threading.get_ident()
        self.optimizers = Known()  # [steps since the counted one stepped, their marks]
        self.counted = None  # the steps of the optimizer that decides when the rehearsal ends
        self.totals = Known()  # steps of each optimizer
        self.created = Known()
        self.waits_since = None
        self.highest_reserved = 0
        self.rose_at = 0  # the step after the second at which reserved memory was last higher than before
        self.rises_since = None
        self.stack_reporter = StackReporter()
        self.capture = None  # of the operators of one more step
        self.stepped_at = None
        self.step_seconds = 0.0
        self.gradients = None  # what the last backward pass left, where no optimizer is known
        self.own_steps = StepsByScript()
        self.has_full_length = False  # of what `generate` makes
        self.recording = False
        self.finished = False
        self.caveats = {}
        self.problems = []
        self.runs_without_gradients = Known()  # of each model, how often after how many steps
        self.evaluated = 0
        self.evaluated_after = 0  # of these, after the asked steps
        self.saved = 0
        self.compiled = False
        self.tensors = []
        self.autotune = None
        self.plain_types = (torch.Tensor,)
        self.record_history = torch.cuda.memory._record_memory_history
        # A process that another one of this rehearsal has started goes on with that one's card.
        variant = os.environ.get("BRIMFUL_REHEARSAL_VARIANT")
        self.variant = int(variant) if variant else None
        self.attempt = int(os.environ.get("BRIMFUL_REHEARSAL_ATTEMPT", "0"))
        self.waited_in_step = False
        self.host = None

    def install(self):
        """Put all hooks in place."""
        if not self.torch.version.cuda:
            tell(event="unsupported", torch=self.torch.__version__, what="a build for AMD's ROCm")
            os._exit(ENVIRONMENT_ERROR)
        if not phantom_is_loaded():
            self.give_up()
        announce_to_phantom()
        self.branch_out()
        if not self.finds_phantom():
            self.give_up()
        tell(event="torch", torch=self.torch.__version__)
        self.stack_reporter.start()
        self.watch_host()
        self.torch.cuda._lazy_call(self.start_recording)
        self.keep_recording()
        self.keep_counting()
        self.watch_optimizers()
        self.watch_modules()
        self.watch_autograd()
        self.watch_calls()
        self.watch_inductor()
        self.choose_convolutions()
        self.keep_values()
        self.assume_losses_are_finite()
        self.assume_distributions_are_valid()
        self.bound_generation()
        self.mend_collectives()
        if WITH:
            self.shorten_loaders()
        atexit.register(self.at_exit)

    def finds_phantom(self):
        """Whether torch's calls reach the phantom, and it has GPUs.

        Asks nothing that initializes CUDA: the script may still set CUDA_VISIBLE_DEVICES.
        """
        import ctypes

        runtime = self.torch._C._cudart
        runtime.cudaGetErrorString(runtime.cudaError.success)
        return ctypes.CDLL(None).brimful_phantom_is_the_runtime() == 1

    def give_up(self):
        """Training on the processor instead would take long and tell nothing."""
        tell(event="problem", text="torch finds no GPU: the phantom did not load")
        sys.stderr.write("brimful: torch finds no GPU although the phantom should be one\n")
        sys.stderr.flush()
        os._exit(ENVIRONMENT_ERROR)

    @guarded
    def watch_host(self):
        host = HostWatch(self.torch)
        host.install()
        self.host = host

    # --- marks ---

    def counts(self):
        """Allocations and frees so far, on each device in use."""
        if not self.recording:
            return ()
        for device in [unused for unused in self.unused if self.torch._C._cuda_hasPrimaryContext(unused)]:
            self.unused.remove(device)
            self.devices.append(device)
        return tuple([self.count(device) for device in self.devices])

    def count(self, device):
        allocation = self.torch._C._cuda_memoryStats(device)["allocation"]["all"]
        return allocation["allocated"] + allocation["freed"] + self.before_reset.get(device, (0, 0))[0]

    def marks_of(self, device):
        """The marks as one device saw them; it has no events before its first use."""
        if device not in self.devices:
            return [[0, kind, text] for _, kind, text in self.marks]
        place = self.devices.index(device)
        return [
            [counts[place] if place < len(counts) else 0, kind, text] for counts, kind, text in self.marks
        ]

    def mark(self, kind, text):
        """Note where in the trace we are."""
        counts = self.counts()
        marks = self.marks
        if kind == "module" and marks and marks[-1][:2] == [counts, kind]:
            marks[-1][2] = text
        else:
            marks.append([counts, kind, text])

    def set_phase(self, phase):
        if phase != self.phase:
            self.phase = phase
            self.mark("phase", phase)

    def caveat(self, kind, text=""):
        """Something that makes the figures weaker."""
        known = self.caveats.setdefault(kind, [0, text])
        known[0] += 1
        if text not in known[1] and known[1].count("; ") < MAX_CAVEAT_TEXTS - 1:
            known[1] += f"; {text}"

    def problem(self, text):
        if len(self.problems) < 20:
            self.problems.append(text)
            tell(event="problem", text=text)

    @guarded
    def start_recording(self):
        """CUDA is being initialised: the allocator is still empty."""
        self.record_history("all", context=None, stacks="python", max_entries=MAX_EVENTS)
        self.unused = list(range(self.torch._C._cuda_getDeviceCount()))
        self.recording = True
        tell(event="cuda", device=self.torch._C._cuda_getDevice())

    def keep_recording(self):
        """The script's own recording would end ours; its snapshots show what ours holds."""
        record = self.record_history

        @functools.wraps(record)
        def recording_already(*_, **__):
            return None

        self.torch.cuda.memory._record_memory_history = recording_already

    def keep_counting(self):
        """Marks are counts since the start, also when the script resets the statistics."""
        torch = self.torch
        reset = torch.cuda.memory.reset_accumulated_memory_stats

        @functools.wraps(reset)
        def resetting(device=None):
            if self.recording:
                self.remember_before_reset(device)
            return reset(device)

        torch.cuda.memory.reset_accumulated_memory_stats = resetting
        torch.cuda.reset_accumulated_memory_stats = resetting

    @guarded
    def remember_before_reset(self, device):
        device = self.torch.cuda._utils._get_device_index(device, optional=True)
        ooms = self.torch._C._cuda_memoryStats(device)["num_ooms"] + self.before_reset.get(device, (0, 0))[1]
        self.before_reset[device] = (self.count(device), ooms)

    # --- optimizer (brimful_steps) ---

    def loaders_are_long(self):
        """With `--with`, training ends when the shortened loader does; a loop that goes on is stopped."""
        return self.steps() >= STEPS + 2

    def reserved(self):
        """Bytes that PyTorch holds; nothing where it has no allocator for the GPU."""
        return self.torch.cuda.memory_reserved() if self.recording else None

    def allocated(self):
        if not self.recording:
            return 0
        device = self.torch._C._cuda_getDevice()
        return self.torch._C._cuda_memoryStats(device)["allocated_bytes"]["all"]["current"]

    # --- modules ---

    def watch_modules(self):
        module = self.torch.nn.modules.module
        self.handles = [
            module.register_module_forward_pre_hook(lambda module, _: self.enter(module)),
            module.register_module_forward_hook(lambda *_: self.leave(), always_call=True),
        ]

    @contextlib.contextmanager
    def unwatched_modules(self):
        """While compiled code runs: the compiler looks into hooks, and would make other graphs."""
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()
        try:
            yield
        finally:
            if handles:
                self.watch_modules()

    def name_of(self, module):
        return self.names.get(module) or type(module).__name__

    def learn_names(self, root):
        self.roots.set(root, "")
        for full_name, module in root.named_modules():
            name = self.as_written(root, full_name)
            kind = type(module).__name__
            if self.names.get(module) is None:
                self.names.set(module, f"{name} ({kind})" if name else kind)

    def as_written(self, root, name):
        """A name as the user knows it, without the parts that wrappers add."""
        parts = [part for part in name.split(".") if part not in WRAPPERS]
        parallel = self.torch.nn.parallel
        if parts[:1] == ["module"] and isinstance(
            root, (parallel.DistributedDataParallel, parallel.DataParallel)
        ):
            parts = parts[1:]
        return ".".join(parts)

    @guarded
    def enter(self, module):
        """A module, or a compiled function."""
        if threading.get_ident() != self.main_thread or self.is_over_and_written():
            return
        is_module = isinstance(module, self.torch.nn.Module)
        if not self.stack:
            if is_module and self.names.get(module) is None:
                self.learn_names(module)
            trains = self.torch.is_grad_enabled() or (is_module and module.training)
            if trains or (is_module and self.is_frozen_part(module)):
                self.set_phase("forward")
            else:
                self.evaluated += 1
                self.evaluated_after += self.trained()
                self.set_phase("evaluation")
        self.stack.append(self.name_of(module) if is_module else getattr(module, "__name__", "a function"))
        self.mark("module", self.stack[-1])

    def is_frozen_part(self, module):
        """Whether the training loop itself runs this model, such as an encoder or a teacher.

        That is one which has run before each step so far, and of which no optimizer changes a parameter.
        """
        runs = self.runs_without_gradients.get(module)
        if runs is None:
            runs = self.runs_without_gradients.set(module, collections.Counter())
        steps = self.steps()
        runs[steps] += 1
        if steps == 0 or any(not runs[step] for step in range(min(steps, STEPS))):
            return False
        optimizers = self.totals.living()
        changed = {id(parameter) for optimizer in optimizers for parameter, _ in parameters_of(optimizer)}
        if any(id(parameter) in changed for parameter in module.parameters()):
            return False
        if runs[steps] == 1 and steps == 1:
            # Before the first step it looked like an evaluation.
            self.evaluated -= runs[0]
        return True

    def is_over_and_written(self):
        return self.finished and self.capture is None

    @guarded
    def leave(self):
        if threading.get_ident() != self.main_thread or self.is_over_and_written():
            return
        if self.stack:
            self.stack.pop()
        self.mark("module", self.stack[-1] if self.stack else "")
        if not self.stack and self.phase == "evaluation" and WITH and self.done_with():
            self.finish("steps")

    def done_with(self):
        """Whether everything that was asked for after the steps has been seen."""
        # An evaluation before the first step, as Lightning makes one, lacks the optimizer's state.
        evaluated = "eval" not in WITH or self.evaluated_after >= EVALUATION_BATCHES
        return self.trained() and evaluated and ("save" not in WITH or self.saved)

    # --- autograd and other calls ---

    def watch_autograd(self):
        autograd = self.torch.autograd

        def wrap(function):
            @functools.wraps(function)
            def wrapper(*arguments, **named):
                if self.torch.compiler.is_compiling():
                    return function(*arguments, **named)
                self.before_backward()
                try:
                    return function(*arguments, **named)
                finally:
                    self.after_backward()

            return wrapper

        autograd.backward = wrap(autograd.backward)
        autograd.grad = wrap(autograd.grad)

    @guarded
    def before_backward(self):
        if threading.get_ident() == self.main_thread:
            if not self.waited_in_step:
                self.waited_in_step = True
                self.let_collectives_end()
            self.look_for_step()
            self.set_phase("backward")

    @guarded
    def after_backward(self):
        if threading.get_ident() == self.main_thread:
            self.stack.clear()
            self.note_gradients()
            self.set_phase("optimizer" if self.inside_optimizer else "forward")

    def watch_calls(self):
        """empty_cache, torch.save and torch.compile."""
        torch = self.torch
        empty_cache = torch.cuda.memory.empty_cache

        @functools.wraps(empty_cache)
        def emptying():
            if self.recording:
                self.mark("empty_cache", "")
            empty_cache()

        torch.cuda.memory.empty_cache = torch.cuda.empty_cache = emptying
        save = torch.save

        @functools.wraps(save)
        def saving(*arguments, **named):
            if self.capture is not None and self.pid == os.getpid():
                self.leave_at_once()  # no step before the next save
            before = self.phase
            self.set_phase("save")
            try:
                return save(*arguments, **named)
            finally:
                self.saved += 1
                self.set_phase(before)
                if WITH and self.done_with():
                    self.finish("steps")

        torch.save = saving
        compile_ = torch.compile

        @functools.wraps(compile_)
        def compiling(*arguments, **named):
            if str(named.get("mode", "")).startswith("max-autotune"):
                self.caveat("autotune", "torch.compile(mode='max-autotune')")
            compiled = compile_(*arguments, **named)
            target = arguments[0] if arguments else named.get("model")
            return compiled if target is None else self.watch_compiled(target, compiled)

        torch.compile = compiling

    def watch_compiled(self, target, compiled):
        """Note calls of what was compiled from the outside, where the compiler does not look."""
        if isinstance(compiled, self.torch.nn.Module):
            self.watch_compiled_modules(type(compiled))
            return compiled
        # `Module.compile` compiles a method of the module.
        owner = getattr(target, "__self__", target)
        if not callable(compiled) or isinstance(compiled, type):
            return compiled

        @functools.wraps(compiled)
        def calling(*arguments, **named):
            if self.torch.compiler.is_compiling():
                return compiled(*arguments, **named)
            self.compiled = True
            self.enter(owner)
            try:
                with self.unwatched_modules():
                    return compiled(*arguments, **named)
            finally:
                self.leave()

        return calling

    def watch_compiled_modules(self, kind):
        if "_brimful_watched" in vars(kind):
            return
        call = kind.__call__

        @functools.wraps(call)
        def calling(module, *arguments, **named):
            if self.torch.compiler.is_compiling():
                return call(module, *arguments, **named)
            self.compiled = True
            self.enter(getattr(module, "_orig_mod", module))
            try:
                with self.unwatched_modules():
                    return call(module, *arguments, **named)
            finally:
                self.leave()

        kind.__call__ = calling
        kind._brimful_watched = True

    # --- the end ---

    def address(self, tensor):
        local = getattr(tensor, "_local_tensor", tensor)
        if not isinstance(local, self.torch.Tensor) or local.device.type != "cuda":
            return None
        return self.address_of(local.untyped_storage())

    def address_of(self, storage):
        return storage.data_ptr()

    @guarded
    def note_tensors(self, at_end=False):
        """Which address is which weight, gradient and optimizer state, at this moment."""
        before, self.tensors = self.tensors, []
        self.note_all()
        if at_end and len(self.tensors) < len(before):  # the script has let go of some
            self.tensors = before
            return
        self.marks = [mark for mark in self.marks if mark[1] != "tensors"]
        self.mark("tensors", "")

    def note_all(self):
        names = {}
        for root in self.roots.living():
            for full_name, parameter in root.named_parameters():
                name = self.as_written(root, full_name)
                names.setdefault(id(parameter), name)
                self.note(parameter, "weight", name)
                self.note(parameter.grad, "gradient", name)
            for name, buffer in root.named_buffers():
                self.note(buffer, "buffer", self.as_written(root, name))
        for optimizer in self.optimizers.living():
            for parameter, state in parameters_of(optimizer):
                name = names.get(id(parameter), "a parameter")
                if parameter is not None:
                    self.note(parameter, "weight", name)
                    self.note(parameter.grad, "gradient", name)
                for key, value in state.items():
                    self.note(value, "state", f"{key} of {name}" if parameter is not None else key)

    def note(self, tensor, kind, name):
        if tensor is None:
            return
        address = self.address(tensor)
        if address:
            self.tensors.append([address, kind, name])

    def at_exit(self):
        self.stack_reporter.stop()
        if self.pid == os.getpid() and self.capture is not None:
            self.leave_at_once()
        if self.pid == os.getpid() and self.recording and not self.finished:
            if not self.trained():
                self.note_tensors(at_end=True)
            self.write("end")

    def finish(self, reason, goes_on=False):
        """Write everything and end the process: nothing of the script runs after this.

        A training loop that would continue makes one more step, whose operators are captured.
        """
        if self.finished or self.pid != os.getpid():
            return
        code = 0
        try:
            self.write(reason)
        except Exception as error:
            # Without figures, but not on: the script would train to its end.
            code = ENVIRONMENT_ERROR
            text = f"the figures of the rehearsal could not be written: {error!r}"
            tell(event="problem", text=text)
            sys.stderr.write(f"brimful: {text}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        if code == 0 and goes_on and self.may_capture() and self.begin_capture():
            return
        os._exit(code)

    def write(self, reason):
        self.finished = True
        self.stack_reporter.stop()
        for wanted, seen in (("eval", self.evaluated_after), ("save", self.saved)):
            if wanted in WITH and not seen:
                self.problem(f"--with {wanted}: the script did not get there within the rehearsal")
        self.counts()  # finds devices that came into use after the last mark
        devices = [device for device in self.devices if self.count(device)]
        if not devices:
            devices = [self.current_device() if self.recording else 0]
        snapshot = self.snapshot() if self.recording else None
        common = self.facts(reason)
        for device in devices:
            stem = f"{self.pid}-{device}" if len(devices) > 1 else f"{self.pid}"
            if snapshot is not None:
                self.put(f"{stem}.snapshot", snapshot)
            self.put(f"{stem}.json", json.dumps({**common, **self.facts_of(device)}).encode())
        tell(event="written", reason=reason)

    def current_device(self):
        return self.torch._C._cuda_getDevice()

    def snapshot(self):
        try:
            found = self.torch._C._cuda_memorySnapshot(None)
        except TypeError:  # before 2.8 it takes no pool
            found = self.torch._C._cuda_memorySnapshot()
        return pickle.dumps(found, protocol=4)

    def put(self, name, contents):
        """Write a file that appears when it is whole."""
        path = os.path.join(FOLDER, name)
        with open(path + ".part", "wb", opener=open_private) as file:
            file.write(contents)
        os.replace(path + ".part", path)

    def facts(self, reason):
        """What holds for the process."""
        rank, world_size = self.world()
        return {
            "reason": reason,
            "variant": self.variant,
            "attempt": self.attempt,
            "torch": self.torch.__version__,
            "cuda": self.torch.version.cuda,
            "rank": rank,
            "world_size": world_size,
            "tensors": self.tensors,
            "steps": self.steps(),
            "evaluated": self.evaluated,
            "saved": self.saved,
            "compiled": self.compiled,
            "caveats": {kind: [count, text] for kind, (count, text) in self.caveats.items()},
            "problems": self.problems,
            "cudnn_benchmark": self.autotune is not None and self.autotune.ever_wanted,
            "phantom": self.phantom_report(),
            "host": self.host.facts() if self.host is not None else None,
            "sources": sources(),
        }

    def facts_of(self, device):
        """What holds for one of its devices."""
        facts = {"device": device, "marks": self.marks_of(device)}
        return {**facts, **self.figures(device)} if self.recording else facts

    def figures(self, device):
        stats = self.torch.cuda.memory_stats(device)
        return {
            "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
            "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
            "retries": stats["num_alloc_retries"],
            "ooms": stats["num_ooms"] + self.before_reset.get(device, (0, 0))[1],
        }

    def phantom_report(self):
        """What the phantom itself saw: guesses, unknown calls, communicators."""
        import ctypes

        try:
            report = ctypes.CDLL(None).brimful_phantom_report
            report.restype = ctypes.c_size_t
            report.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            buffer = ctypes.create_string_buffer(1 << 16)
            length = report(buffer, len(buffer))
            return json.loads(buffer.raw[: min(length, len(buffer) - 1)])
        except (AttributeError, ValueError):
            return None
