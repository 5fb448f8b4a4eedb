"""Which steps were made, by which optimizer, and whether enough of them were.

Steps are seen by PyTorch's own hooks for every `torch.optim.Optimizer`, by a wrapper for the libraries that
have optimizers of another class, and where a script changes its parameters by itself, by the parameters: a
backward pass that begins with new gradients has had a step before it.
"""

import functools
import time
import weakref

from brimful_common import STEPS, WITH, guarded, tell
from brimful_imports import IMPORTS

# An optimizer whose turn comes later, such as a generator's after five steps of the discriminator, is waited
# for during this many steps of the one that decides, and no longer than this.
MAX_STEPS_WAITED = 20
MAX_SECONDS_WAITED = 30.0
# A rehearsal whose reserved memory still rises continues for this many steps, and no longer than this.
MAX_STEPS_RISING = 20
MAX_SECONDS_RISING = 20.0
# Steps without a rise after which there will hardly be another one.
STEPS_FLAT = 2
# With its state allocated, the next step has the peak.
STEPS_OF_OTHERS = min(2, STEPS)
# Classes whose instances step, beside those of torch.optim: module, class, method.
FOREIGN_OPTIMIZERS = (
    ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"),
    ("fastai.optimizer", "Optimizer", "step"),
)
# Parameters that are looked at for a step that nobody announced.
MAX_PARAMETERS = 64


def parameters_of(optimizer):
    """Return (parameter, {name: state}) of an optimizer of PyTorch, fastai or Keras."""
    if hasattr(optimizer, "param_groups"):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        return [(parameter, optimizer.state.get(parameter, {})) for parameter in parameters]
    if hasattr(optimizer, "all_params"):
        return [(parameter, state) for parameter, _, state, _ in optimizer.all_params()]
    trained = [variable.value for variable in getattr(optimizer, "_trainable_variables", ())]
    others = {str(variable.name): variable.value for variable in getattr(optimizer, "variables", ())}
    return [(parameter, {}) for parameter in trained] + ([(None, others)] if others else [])


class Steps:
    """A part of the rehearsal."""

    def watch_optimizers(self):
        from torch.optim import optimizer as module

        module.register_optimizer_step_pre_hook(lambda optimizer, *_: self.before_step(optimizer))
        module.register_optimizer_step_post_hook(lambda optimizer, *_: self.after_step(optimizer))
        self.watch_creation(module.Optimizer)
        for name, kind, method in FOREIGN_OPTIMIZERS:
            IMPORTS.after(name, functools.partial(self.watch_foreign, kind, method), self.problem)

    def watch_creation(self, kind):
        """Every optimizer that the script creates is expected to step."""
        creating = kind.__init__

        @functools.wraps(creating)
        def created(optimizer, *arguments, **named):
            creating(optimizer, *arguments, **named)
            self.note_created(optimizer)

        kind.__init__ = created

    @guarded
    def note_created(self, optimizer):
        self.created.set(optimizer, "created")

    def watch_foreign(self, kind, method, module):
        """Wrap the step of an optimizer that is none of PyTorch's."""
        kind = getattr(module, kind)
        stepping = getattr(kind, method)

        @functools.wraps(stepping)
        def step(optimizer, *arguments, **named):
            outermost = not self.inside_optimizer
            if outermost:
                self.before_step(optimizer)
            try:
                return stepping(optimizer, *arguments, **named)
            finally:
                if outermost:
                    self.after_step(optimizer)

        setattr(kind, method, step)

    @guarded
    def before_step(self, optimizer):
        if WITH and self.counted is None:
            self.bring_evaluation_forward()
        self.inside_optimizer += 1
        self.set_phase("optimizer")

    @guarded
    def after_step(self, optimizer):
        self.inside_optimizer = max(0, self.inside_optimizer - 1)
        self.set_phase("forward")
        self.let_collectives_end()
        self.waited_in_step = False
        self.gradients = None
        self.made_step(optimizer)

    def made_step(self, optimizer):
        if self.capture is not None:
            if self.optimizers.get(optimizer) is self.counted:
                self.end_capture()
            return
        self.note_step_time()
        self.stack_reporter.after_step()
        counts = self.count_step(optimizer)
        steps = self.steps()
        if counts:
            if self.host is not None:
                self.host.after_step(optimizer)
            self.mark("step", str(steps))
            self.watch_reserved(steps)
            tell(event="step", step=min(steps, STEPS), of=STEPS, bytes=self.allocated())
        if (counts and steps in (1, 2, STEPS)) or self.trained():
            # A function that trains for fewer steps has let go of its model when the script ends.
            self.note_tensors()
        if (self.trained() and not WITH and self.is_over()) or (WITH and self.loaders_are_long()):
            self.finish("steps", goes_on=counts)

    def is_over(self):
        return self.all_have_stepped() and not self.is_rising()

    # --- reserved memory that still rises ---

    def watch_reserved(self, steps):
        reserved = self.reserved()
        if reserved is not None and reserved > self.highest_reserved:
            self.highest_reserved = reserved
            # Optimizer state appears in the first step, and what it displaces in the second.
            self.rose_at = steps if steps > 2 else 0

    def is_rising(self):
        """Whether a longer rehearsal is likely to show more.

        Only in a training of one process: the ranks of several would stop at different steps.
        """
        if not self.rose_at or self.world()[1] > 1:
            return False
        now = time.monotonic()
        if self.rises_since is None:
            self.rises_since = now
        too_long = now - self.rises_since > MAX_SECONDS_RISING or self.steps() >= STEPS + MAX_STEPS_RISING
        if too_long and self.steps() - self.rose_at < STEPS_FLAT:
            self.caveat("reserved_rises", str(self.steps()))
        return not too_long and self.steps() - self.rose_at < STEPS_FLAT

    def count_step(self, optimizer):
        """Count a step; whether it is one of the optimizer that decides.

        That is the first one, until another one has made all asked steps without it: what came before was a
        search for a learning rate, or a stage of its own.
        """
        self.totals.set(optimizer, (self.totals.get(optimizer) or 0) + 1)
        own = self.optimizers.get(optimizer) or self.optimizers.set(optimizer, [0, []])
        own[0] += 1
        if self.counted is None or (own[0] >= STEPS and not self.trained()):
            self.counted = own
        if own is not self.counted:
            self.mark("other step", str(own[0]))
            own[1].append(self.marks[-1])
            return False
        for mark in own[1]:
            mark[1] = "step"
        for other in self.optimizers.values():
            if other is not own:
                other[:] = [0, []]
        own[1] = []
        return True

    def steps(self):
        return self.counted[0] if self.counted else 0

    def trained(self):
        """Whether the asked steps have been made."""
        return self.steps() >= STEPS

    # --- several optimizers ---

    def all_have_stepped(self):
        """Whether every optimizer that can step has done so, or was waited for long enough."""
        waiting = [optimizer for optimizer in self.created.living() if self.is_waited_for(optimizer)]
        if not waiting:
            return True
        now = time.monotonic()
        if self.waits_since is None:
            self.waits_since = now
        too_long = now - self.waits_since > MAX_SECONDS_WAITED
        if not too_long and self.steps() < STEPS + MAX_STEPS_WAITED:
            return False
        self.caveat("optimizer_without_steps", "; ".join(map(self.describe, waiting[:4])))
        return True

    def is_waited_for(self, optimizer):
        if (self.totals.get(optimizer) or 0) >= STEPS_OF_OTHERS:
            return False
        return any(parameter.requires_grad for parameter, _ in parameters_of(optimizer))

    def describe(self, optimizer):
        n_elements = sum(parameter.numel() for parameter, _ in parameters_of(optimizer))
        made = self.totals.get(optimizer) or 0
        return f"{type(optimizer).__name__} with {n_elements:,} parameters made {made} steps"

    # --- steps that nobody announces ---

    def note_gradients(self):
        """After a backward pass: remember the gradients that it left."""
        known = self.created.living() + self.totals.living()
        if any(optimizer is not self.own_steps for optimizer in known):
            self.gradients = None
            return
        found = []
        for root in self.roots.living():
            for parameter in root.parameters():
                if parameter.grad is not None and len(found) < MAX_PARAMETERS:
                    found.append(Gradient(parameter))
        self.gradients = found or None

    def look_for_step(self):
        """Before a backward pass: new gradients mean that the script itself has made a step."""
        known, self.gradients = self.gradients, None
        if known is not None and any(gradient.is_over() for gradient in known):
            self.caveat("steps_by_script", "the script changes its parameters by itself")
            self.made_step(self.own_steps)


class Gradient:
    """A gradient as a backward pass has left it. It is not kept alive: that would take memory."""

    def __init__(self, parameter):
        self.parameter = weakref.ref(parameter)
        self.gradient = weakref.ref(parameter.grad)
        self.versions = (parameter._version, parameter.grad._version)

    def is_over(self):
        """Whether the parameter was changed, or the gradient removed or set to zero."""
        parameter, gradient = self.parameter(), self.gradient()
        if parameter is None or gradient is None or parameter.grad is not gradient:
            return True
        return (parameter._version, gradient._version) != self.versions


class StepsByScript:
    """Stands for the lines of a script that change parameters without an optimizer."""

    def __init__(self):
        self.param_groups = []
        self.state = {}
