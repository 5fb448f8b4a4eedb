"""Loaded by Python at its start because brimful put this folder first on PYTHONPATH.

Steps aside for the user's own sitecustomize, then waits for torch to be imported. Nothing here may stop the
script.
"""

import os
import sys


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
    finally:
        # The rest of the script sees the path as it would be without us.
        added = [entry for entry in sys.path if entry not in kept]
        sys.path[:] = added + [entry for entry in kept if os.path.abspath(entry or ".") != here]
    return here


# Each needs those before it. They are loaded by path: their folder is on nobody's search path.
_PARTS = (
    "brimful_common",
    "brimful_composition",
    "brimful_host",
    "brimful_isolation",
    "brimful_branches",
    "brimful_substitutes",
    "brimful_onward",
    "brimful_rehearsal",
)


def _load(folder):
    """Load the rehearsal beside this file, under names that nobody else uses."""
    import importlib.util

    for name in _PARTS:
        spec = importlib.util.spec_from_file_location(name, os.path.join(folder, f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    sys.modules["brimful_rehearsal"].wait_for_torch()


def _load_accepts(folder):
    """Load what asks a script for its options, for `brimful init`."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(
        "brimful_accepts", os.path.join(folder, "brimful_accepts.py")
    )
    module = sys.modules["brimful_accepts"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.watch()


try:
    _folder = _step_aside()
    if os.environ.get("BRIMFUL_REHEARSAL"):
        _load(_folder)
    elif os.environ.get("BRIMFUL_ACCEPTS"):
        _load_accepts(_folder)
except Exception as error:
    sys.stderr.write(f"brimful: the rehearsal could not be prepared: {error!r}\n")
