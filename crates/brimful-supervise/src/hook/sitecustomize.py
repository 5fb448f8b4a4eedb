"""Loaded by Python at its start because `brimful run` put this directory first on PYTHONPATH.

Steps aside for the user's own sitecustomize, and leaves one object on sys.meta_path that waits for torch.
The script sees neither this directory on its path nor this module: where the user has no sitecustomize,
importing it fails as it would without us. PYTHONPATH stays as it is, for the Pythons that this one starts.

Every Python of the job reads this file, so it keeps to what Python 2 can parse, and imports nothing that
Python has not imported by now.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _is_ours(entry):
    return os.path.abspath(entry or ".") == _FOLDER


class _TorchFinder(object):
    """Finds torch as Python would, and has the hook installed when it is loaded.

    It stays until then: torch may be looked up any number of times before it is loaded.
    """

    def __init__(self):
        self.is_done = False

    def find_spec(self, name, path=None, target=None):
        """Stand in for the finders behind this one, for torch alone."""
        if self.is_done:
            return None
        try:
            if name != "torch":
                self.look_for_torch()
                return None
            spec = self.ask_others(name, path, target)
        except ImportError:
            raise
        except Exception:
            return None  # the finders behind this one are asked by Python, and report what is wrong
        try:
            self.watch(spec)
        except Exception:
            pass  # then torch is loaded as if nobody watched
        return spec

    def ask_others(self, name, path, target):
        finders = list(sys.meta_path)
        places = [place for place, finder in enumerate(finders) if finder is self]
        for finder in finders[places[0] + 1 :] if places else ():
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                return spec
        return None

    def watch(self, spec):
        loader = spec.loader
        run = loader.exec_module

        def exec_module(module):
            run(module)  # may fail, and be called again
            try:
                del loader.exec_module  # leave no trace
            except AttributeError:
                pass
            try:
                self.finish(module)
                sys.meta_path.remove(self)
            except Exception:
                pass  # the training goes on without

        loader.exec_module = exec_module

    def look_for_torch(self):
        """See whether torch was loaded past this finder: others, such as comet_ml's, put theirs in front."""
        torch = sys.modules.get("torch")
        # One that is loaded lazily has another class until then.
        if type(torch) is not type(sys):
            return
        spec = vars(torch).get("__spec__")
        if spec is not None and not getattr(spec, "_initializing", True) and "__version__" in vars(torch):
            # Stays on sys.meta_path, which is being walked.
            self.finish(torch)

    def finish(self, torch):
        if not self.is_done:
            self.is_done = True
            _install(torch)


# Each needs those before it. They are loaded by path: their directory is on nobody's search path.
_PARTS = ("brimful_gauge", "brimful_gpu", "brimful_inside")


def _install(torch):
    import importlib.util

    try:
        for name in _PARTS:
            spec = importlib.util.spec_from_file_location(name, os.path.join(_FOLDER, name + ".py"))
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        sys.modules["brimful_inside"].install(torch)
    except BaseException:
        for name in _PARTS:
            sys.modules.pop(name, None)
        raise


def _step_aside():
    """Load the sitecustomize that Python would have found without us, or fail as Python would."""
    own = sys.modules.pop("sitecustomize", None)  # noqa: F841  # Python 2 empties a module that nobody holds
    sys.path[:] = [entry for entry in sys.path if not _is_ours(entry)]
    for entry in [entry for entry in sys.path_importer_cache if _is_ours(entry)]:
        del sys.path_importer_cache[entry]
    import sitecustomize  # noqa: F401


try:
    if sys.version_info >= (3, 8) and os.environ.get("BRIMFUL_INSIDE"):
        sys.meta_path.insert(0, _TorchFinder())
except Exception:
    pass  # the training goes on without
_step_aside()
