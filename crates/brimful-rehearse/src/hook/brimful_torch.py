"""Waits for torch, and ends a rehearsal whose torch was loaded without the hook.

Such a script would train to its end on a GPU that computes nothing, and save what came of it.
"""

import atexit
import os
import sys

from brimful_common import tell
from brimful_imports import IMPORTS

# What brimful's own mistakes and an unusable machine end with.
ENVIRONMENT_ERROR = 97


class TorchWatch:
    """Whether torch is loaded, and with the hook."""

    def __init__(self, install):
        self.install = install
        self.is_installed = False
        self.loading = 0

    def start(self):
        """Have `install(torch)` called when torch has been loaded."""
        if "torch" in sys.modules:
            self.call_install(sys.modules["torch"])
            return
        IMPORTS.around("torch", self.load)
        IMPORTS.checks.append(self.check)
        atexit.register(self.check)

    def load(self, run, torch):
        self.loading += 1
        try:
            run(torch)
            # A second execution has a module of its own, but the library below it is the same.
            if not self.is_installed:
                self.call_install(torch)
        finally:
            self.loading -= 1

    def call_install(self, torch):
        # First: installing forks, and the children go on with the script.
        self.is_installed = True
        try:
            self.install(torch)
        except Exception as error:
            self.end(f"the hook failed: {error!r}")

    def check(self, name=""):
        """End a script that has loaded torch past the hook.

        Loading torch imports hundreds of modules, so this is called early.
        """
        if self.is_installed or self.loading or "torch" not in sys.modules:
            return
        # The native part tells torch from a module that a test puts in its place.
        if name == "torch._C" or "torch._C" in sys.modules:
            self.end("it was loaded by an import system of the script's own")

    def end(self, why):
        version = getattr(sys.modules.get("torch.version"), "__version__", None)
        tell(event="unhooked", torch=version and str(version), why=why[:500])
        sys.stderr.write(f"brimful: torch was loaded without brimful's hook: {why}\n")
        sys.stderr.flush()
        os._exit(ENVIRONMENT_ERROR)
