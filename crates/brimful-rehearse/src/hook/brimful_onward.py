"""On to evaluation and saving, for `--with eval,save`: the training loop is told that its data has ended."""

import functools
import sys

from brimful_common import EVALUATION_BATCHES, WITH, guarded


class Onward:
    """A part of the rehearsal."""

    def shorten_loaders(self):
        """After the asked steps a training loop ends as if its data had: evaluation and saving follow."""
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        following = _BaseDataLoaderIter.__next__
        rehearsal = self

        def shortened(iterator):
            given = getattr(iterator, "_brimful_given", 0)
            if rehearsal.trained():
                trained = getattr(iterator, "_brimful_trained", False)
                if trained or given >= EVALUATION_BATCHES:
                    raise StopIteration
            else:
                iterator._brimful_trained = True
            iterator._brimful_given = given + 1
            return following(iterator)

        resetting = _BaseDataLoaderIter._reset

        def reset(iterator, *arguments, **named):
            # Persistent workers keep their iterator from one loop to the next.
            iterator._brimful_given = 0
            iterator._brimful_trained = False
            return resetting(iterator, *arguments, **named)

        _BaseDataLoaderIter.__next__ = shortened
        _BaseDataLoaderIter._reset = reset

    @guarded
    def bring_evaluation_forward(self):
        """Trainers that evaluate and save after a number of steps do it after the asked ones."""
        callbacks = sys.modules.get("transformers.trainer_callback")
        if callbacks is not None:
            self.hasten_transformers(callbacks.DefaultFlowCallback)
        for name in ("lightning.pytorch", "pytorch_lightning"):
            loops = sys.modules.get(f"{name}.loops.training_epoch_loop")
            if loops is not None:
                self.hasten_lightning(loops._TrainingEpochLoop)

    def hasten_transformers(self, flow):
        ending = flow.on_step_end

        @functools.wraps(ending)
        def on_step_end(callback, args, state, control, **named):
            control = ending(callback, args, state, control, **named)
            if self.trained() and "eval" in WITH and self.evaluated_after < EVALUATION_BATCHES:
                strategy = getattr(args, "eval_strategy", getattr(args, "evaluation_strategy", "no"))
                control.should_evaluate = control.should_evaluate or strategy == "steps"
            if self.trained() and "save" in WITH and not self.saved:
                control.should_save = control.should_save or args.save_strategy == "steps"
            return control

        flow.on_step_end = on_step_end

    def hasten_lightning(self, loop):
        should_check = loop._should_check_val_fx

        @functools.wraps(should_check)
        def check_now(epoch, *arguments, **named):
            # It counts batches, and the shortened loader gives fewer than it has counted.
            due = self.trained() and not self.evaluated_after and epoch._should_check_val_epoch()
            return due or should_check(epoch, *arguments, **named)

        loop._should_check_val_fx = check_now
