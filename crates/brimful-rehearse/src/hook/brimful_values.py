"""What stands in for values that only a real card would have, so that checks pass and loops end."""

import functools
import sys

from brimful_common import guarded, load_part, printable, tell
from brimful_imports import IMPORTS

# Each needs those before it.
VALUE_PARTS = (
    "brimful_plausible",
    "brimful_shadows",
    "brimful_dispatch",
    "brimful_assumptions",
    "brimful_operators",
)


class Values:
    """A part of the rehearsal."""

    @guarded
    def keep_values(self):
        """Values that come from the host are true, others plausible (`brimful_operators`)."""
        import ctypes

        phantom = ctypes.CDLL(None)
        writes = ctypes.c_uint64.in_dll(phantom, "BRIMFUL_PHANTOM_WRITES")
        foreign_launches = ctypes.c_uint64.in_dll(phantom, "BRIMFUL_PHANTOM_FOREIGN_LAUNCHES")
        for name in VALUE_PARTS:
            load_part(name)
        operators = sys.modules["brimful_operators"].Operators(
            self.caveat, self.problem, lambda: writes.value, lambda: foreign_launches.value
        )
        operators.install()
        self.report_assumed_value(operators)

    def report_assumed_value(self, operators):
        """Where a script fails, say where it has last read a value that is not true."""
        hook = sys.excepthook

        @functools.wraps(hook)
        def excepthook(kind, error, traceback):
            if operators.last_read is not None and not issubclass(kind, KeyboardInterrupt):
                tell(event="assumed-value", place=printable(operators.last_read, 200))
            return hook(kind, error, traceback)

        sys.excepthook = excepthook

    @guarded
    def assume_distributions_are_valid(self):
        """`torch.distributions` checks its arguments, and what a phantom computes are no probabilities."""

        def without_checks(module):
            module.Distribution.set_default_validate_args(False)

        IMPORTS.after("torch.distributions.distribution", without_checks, self.problem)

    @guarded
    def bound_generation(self):
        """`generate` ends on token ids, which the model computes; the lengths that it was given are known.

        So it makes as many tokens as it may, which is the most memory it can take.
        """
        IMPORTS.after("transformers.generation.stopping_criteria", self.watch_lengths, self.problem)
        IMPORTS.after("transformers.generation.utils", self.end_at_lengths, self.problem)

    def watch_lengths(self, module):
        criteria = module.MaxLengthCriteria
        judging = criteria.__call__

        @functools.wraps(judging)
        def call(criterion, input_ids, *arguments, **named):
            if input_ids.shape[-1] >= criterion.max_length:
                self.has_full_length = True
            return judging(criterion, input_ids, *arguments, **named)

        criteria.__call__ = call

    def end_at_lengths(self, module):
        mixin = module.GenerationMixin
        asking = mixin._has_unfinished_sequences

        @functools.wraps(asking)
        def has_unfinished(model, *arguments, **named):
            if self.has_full_length:
                self.has_full_length = False
                self.caveat("full_generation", "generate() made as many tokens as it may")
                return False
            return asking(model, *arguments, **named)

        mixin._has_unfinished_sequences = has_unfinished
