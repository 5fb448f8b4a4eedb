"""The rehearsal of a script that trains on the processors: nothing stands in, only the host is measured."""

import atexit
import multiprocessing
import os

from brimful_common import WITH, tell
from brimful_host import anonymous
from brimful_rehearsal import Rehearsal


class OnProcessors(Rehearsal):
    """One training process under observation, without a card."""

    def install(self):
        tell(event="torch", torch=self.torch.__version__)
        self.stack_reporter.start()
        self.watch_host()
        self.watch_optimizers()
        self.watch_modules()
        self.watch_calls()
        if WITH:
            self.shorten_loaders()
        atexit.register(self.at_exit)

    def allocated(self):
        return anonymous()

    def at_exit(self):
        self.stack_reporter.stop()
        # Workers come by here too.
        trained = self.steps() > 0 or multiprocessing.parent_process() is None
        if self.pid == os.getpid() and trained and not self.finished:
            self.write("end")

    def phantom_report(self):
        return None
