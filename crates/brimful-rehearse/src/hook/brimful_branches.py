"""One process per card: the script goes on once for each, and again with more room where it must."""

import json
import os
import sys
import time

from brimful_common import FOLDER, exit_code, tell
from brimful_isolation import branch_off

# One list for each card to rehearse on: descriptions for the phantom, to be tried in turn until one does not
# run out of memory. The last one has endless room.
VARIANTS = json.loads(os.environ.get("BRIMFUL_REHEARSAL_VARIANTS", "[]"))
# Programs that import torch only to start the processes that train.
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


def is_notebook_kernel():
    return any(name in sys.modules for name in ("ipykernel.kernelapp", "xeus_python_shell"))


class Branches:
    """A part of the rehearsal."""

    def branch_out(self):
        """Go on once for each card, from here: importing torch takes longer than most rehearsals."""
        if not VARIANTS or self.variant is not None or int(os.environ.get("WORLD_SIZE", "1") or "1") > 1:
            return
        if is_notebook_kernel():
            # Its threads and sockets do not survive a fork. It goes on with the first card, and the notebook
            # is started again for the others.
            return
        at_once = self.processes_at_once()
        running = {}  # process -> which card
        worst = 0
        for index, descriptions in enumerate(VARIANTS):
            if len(running) >= at_once:
                worst = max(worst, self.wait_for_one(running))
            child = os.fork()
            if child == 0:
                self.variant = index
                if index > 0:
                    self.redirect_output(index)
                self.try_in_turn(descriptions)
                self.pid = os.getpid()
                return
            running[child] = index
        while running:
            worst = max(worst, self.wait_for_one(running))
        os._exit(worst)

    def wait_for_one(self, running):
        """The exit code of the next of these processes to end.

        The process may have children that are not ours, so it must not wait for any child.
        """
        while True:
            for child, index in running.items():
                try:
                    ended, status = os.waitpid(child, os.WNOHANG)
                except ChildProcessError:  # where SIGCHLD is ignored nobody learns how it ended
                    ended, status = child, 0
                if ended:
                    del running[child]
                    code = exit_code(status)
                    tell(event="ended", variant=index, code=code)
                    return code
            time.sleep(0.005)

    def processes_at_once(self):
        command = getattr(sys, "orig_argv", sys.argv)[:4]
        if any(os.path.basename(part) in LAUNCHERS for part in command):
            return 1  # two of them would want the same port
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def redirect_output(self, index):
        """One copy of the script's output is enough."""
        handle = os.open(os.path.join(FOLDER, f"output-{index}"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(handle)

    def try_in_turn(self, descriptions):
        """Go on with the first description on which the script does not die of memory."""
        for attempt, description in enumerate(descriptions):
            self.attempt = attempt
            if attempt == len(descriptions) - 1:
                self.have_own_files()
                self.configure(description)
                return
            child = os.fork()
            if child == 0:
                self.have_own_files()
                self.configure(description)
                return
            _, status = os.waitpid(child, 0)
            if status == 0 or not self.died_of_memory(attempt):
                os._exit(exit_code(status))

    def have_own_files(self):
        """Every GPU model and every attempt starts from the user's files, not from another's writes."""
        try:
            branch_off(f"{self.variant}-{self.attempt}")
        except (OSError, ValueError, AttributeError) as error:
            tell(event="problem", text=f"a GPU model cannot have files of its own: {error}")
            sys.stderr.write(f"brimful: a GPU model cannot have files of its own: {error}\n")
            sys.stderr.flush()
            os._exit(97)

    def configure(self, description):
        import ctypes

        configure = ctypes.CDLL(None).brimful_phantom_configure
        configure.argtypes = [ctypes.c_char_p]
        if configure(description.encode()) != 0:
            tell(event="problem", text=f"the phantom does not take {description!r}")
        self.remember_choice(description)

    def remember_choice(self, description):
        # What this process starts is on the same card and does not branch again.
        os.environ["BRIMFUL_PHANTOM_DEVICES"] = description
        if self.variant is not None:
            os.environ["BRIMFUL_REHEARSAL_VARIANT"] = str(self.variant)
        os.environ["BRIMFUL_REHEARSAL_ATTEMPT"] = str(self.attempt)

    def died_of_memory(self, attempt):
        """Whether a process of this attempt met the end of memory.

        What it wrote is then set aside: it counts only if the attempt with more room brings nothing.
        """
        died = False
        written = []
        for name in os.listdir(FOLDER):
            if not name.endswith(".json"):
                continue
            path = os.path.join(FOLDER, name)
            with open(path, encoding="utf-8") as file:
                facts = json.load(file)
            if facts["variant"] == self.variant and facts["attempt"] == attempt:
                written.append(path)
                died = died or facts.get("ooms", 0) > 0
        for path in written if died else []:
            os.replace(path, path.removesuffix("json") + "ran-out")
        return died
