"""What the parts of the rehearsal share: what was asked, and how to tell."""

import functools
import importlib.util
import json
import os
import sys
import threading
import time
import weakref

FOLDER = os.environ.get("BRIMFUL_REHEARSAL") or os.environ.get("BRIMFUL_VERIFY", "")
STEPS = int(os.environ.get("BRIMFUL_REHEARSAL_STEPS", "3"))
WITH = set(filter(None, os.environ.get("BRIMFUL_REHEARSAL_WITH", "").split(",")))
# No card is stood in for: the script trains on the processors, and only the host is measured.
PROCESSORS = os.environ.get("BRIMFUL_REHEARSAL_PROCESSORS") == "1"
# A loop over this many evaluation batches shows the peak of evaluation.
EVALUATION_BATCHES = 3
# For tests: take the CUDA build of torch for one without, as far as that can be done.
WITHOUT_CUDA = os.environ.get("BRIMFUL_REHEARSAL_WITHOUT_CUDA") == "1"


def open_private(path, flags):
    """Open a file that only this user can read, whatever the umask is: `open(..., opener=open_private)`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def tell(**facts):
    """Append one line for the waiting program."""
    if not FOLDER:
        return
    facts["pid"] = os.getpid()
    line = (json.dumps(facts) + "\n").encode()
    try:
        handle = os.open(os.path.join(FOLDER, "progress"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, line)
        os.close(handle)
    except OSError:
        pass


def printable(text, limit):
    """Return text as one line without control characters, shortened."""
    try:
        text = str(text)
    except Exception:
        return ""
    words = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * limit]).split()
    return " ".join(words)[:limit]


def phantom_is_loaded():
    import ctypes

    return hasattr(ctypes.CDLL(None), "brimful_phantom_configure")


def announce_to_phantom():
    """Let the phantom know that the hook watches this process: without it, it ends a rehearsal."""
    import ctypes

    ctypes.CDLL(None).brimful_phantom_watched()


def load_part(name):
    """Load a part that needs torch; the folder of the parts is on nobody's search path."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def pretend_no_cuda(torch):
    """Take from the CUDA build what a build without CUDA lacks."""
    torch.version.cuda = None
    for name in [name for name in dir(torch._C) if name.startswith("_cuda_")]:
        delattr(torch._C, name)
    torch._C._has_cuda = torch._C._has_cudnn = False
    # Without cuDNN PyTorch's own kernels are chosen.
    torch.backends.cudnn.enabled = False


def exit_code(status):
    """As a shell has it: 128 and the signal for a process that one has ended."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


class OwnTime:
    """Seconds that the rehearsal itself took in the thread of the script, which are none of the script's."""

    def __init__(self):
        self.seconds = 0.0
        self.began = None
        self.thread = threading.get_ident()

    def begin(self):
        """Whether nobody further out counts already."""
        if self.began is not None or threading.get_ident() != self.thread:
            return False
        self.began = time.perf_counter()
        return True

    def end(self):
        self.seconds += time.perf_counter() - self.began
        self.began = None

    def so_far(self):
        running = 0.0 if self.began is None else time.perf_counter() - self.began
        return self.seconds + running


OWN_TIME = OwnTime()


def guarded(function):
    """A mistake in here must not reach the script, and its time is not the script's."""

    @functools.wraps(function)
    def wrapper(self, *arguments, **named):
        counts = OWN_TIME.begin()
        try:
            return function(self, *arguments, **named)
        except Exception as error:
            self.problem(f"{function.__name__}: {error!r}")
            return None
        finally:
            if counts:
                OWN_TIME.end()

    return wrapper


class Known:
    """What is known of objects, by identity, without keeping them alive."""

    def __init__(self):
        self.entries = {}  # id -> (reference, what is known)

    def get(self, thing):
        entry = self.entries.get(id(thing))
        return entry[1] if entry is not None and entry[0]() is thing else None

    def set(self, thing, known):
        key = id(thing)
        self.entries[key] = (weakref.ref(thing, functools.partial(self.forget, key)), known)
        return known

    def forget(self, key, reference):
        # A new object may already have the id of the one that died.
        if key in self.entries and self.entries[key][0] is reference:
            del self.entries[key]

    def living(self):
        things = [reference() for reference, _ in list(self.entries.values())]
        return [thing for thing in things if thing is not None]

    def values(self):
        return [known for _, known in list(self.entries.values())]
