"""Loaded by Python at its start because brimful put this directory first on PYTHONPATH.

Steps aside for the user's own sitecustomize, then waits for torch to be imported. A mistake of the user's own
sitecustomize is reported as Python reports it; a mistake of ours ends the process: without the hook the
script would train to its end, upload and save.
"""

import os
import sys

# What an unusable environment ends with.
_ENVIRONMENT_ERROR = 97


def _step_aside():
    """Load the sitecustomize that Python would have found without us."""
    here = os.path.dirname(os.path.abspath(__file__))
    own = sys.modules.pop("sitecustomize", None)
    kept = list(sys.path)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own
    except Exception as error:
        sys.stderr.write(f"Error in sitecustomize: {error!r}\n")
    finally:
        # The rest of the script sees the path as it would be without us.
        added = [entry for entry in sys.path if entry not in kept]
        sys.path[:] = added + [entry for entry in kept if os.path.abspath(entry or ".") != here]
    return here


# Each needs those before it. They are loaded by path: their directory is on nobody's search path.
_BOTH = ("brimful_common", "brimful_imports", "brimful_suppress", "brimful_trackers", "brimful_input")
_ACCEPTS = ("brimful_accepts", "brimful_parsers", "brimful_literals")
_REHEARSAL = (
    "brimful_composition",
    "brimful_host",
    "brimful_inductor",
    "brimful_isolation",
    "brimful_branches",
    "brimful_substitutes",
    "brimful_onward",
    "brimful_capture",
    "brimful_stack",
    "brimful_steps",
    "brimful_values",
    "brimful_torch",
    "brimful_rehearsal",
)


_VERIFY = ("brimful_verify",)


def _load(directory, names):
    """Load parts beside this file, under names that nobody else uses."""
    import importlib.util

    for name in names:
        spec = importlib.util.spec_from_file_location(name, os.path.join(directory, f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


def _prepare(directory):
    rehearses = bool(os.environ.get("BRIMFUL_REHEARSAL"))
    verifies = bool(os.environ.get("BRIMFUL_VERIFY"))
    if not rehearses and not verifies and not os.environ.get("BRIMFUL_ACCEPTS"):
        return
    if sys.version_info < (3, 9):  # noqa: UP036
        return  # a program of the system's, too old for a torch that could be rehearsed
    _load(directory, _BOTH)
    sys.modules["brimful_imports"].IMPORTS.install()
    sys.modules["brimful_trackers"].install()
    sys.modules["brimful_input"].install()
    if rehearses:
        _load(directory, _REHEARSAL)
        sys.modules["brimful_rehearsal"].wait_for_torch()
    elif verifies:
        _load(directory, _VERIFY)
        sys.modules["brimful_verify"].wait_for_torch()
    else:
        _load(directory, _ACCEPTS)
        for name in _ACCEPTS:
            sys.modules[name].watch()


_directory = _step_aside()
try:
    _prepare(_directory)
except Exception as _error:
    sys.stderr.write(f"brimful: the rehearsal could not be prepared: {_error!r}\n")
    sys.stderr.flush()
    os._exit(_ENVIRONMENT_ERROR)
