"""Predict, watch and explain the memory use of PyTorch training runs.

Importing this package has no side effects: it loads no driver, reads no environment variables, starts no
threads, and imports neither torch nor numpy.

Examples:
    >>> import brimful
    >>> colab = brimful.probe(as_machine="colab-t4")
    >>> colab.gpus[0].name
    'Tesla T4'
    >>> [finding.id for finding in colab.findings]
    ['limits_above_not_visible', 'few_cpus_for_workers', 'bf16_emulated']
"""

from brimful._compare import Comparison, compare
from brimful._errors import BrimfulError, InputError, InternalError, MachineError
from brimful._explain import Explanation, Runs, explain, runs
from brimful._fleet import Fleet
from brimful._native import SharedArray, SharedDict, SharedList, __version__
from brimful._plan import Plan, plan
from brimful._predict import Footprint, predict
from brimful._prepare import Prepared, prepare
from brimful._probe import Machine, card_names, machine_names, probe
from brimful._replay import Replay, replay
from brimful._report import report
from brimful._run import Run, run
from brimful._share import share
from brimful._watch import Watch, watch

__all__ = [
    "BrimfulError",
    "Comparison",
    "Explanation",
    "Fleet",
    "Footprint",
    "InputError",
    "InternalError",
    "Machine",
    "MachineError",
    "Plan",
    "Prepared",
    "Replay",
    "Run",
    "Runs",
    "SharedArray",
    "SharedDict",
    "SharedList",
    "Watch",
    "__version__",
    "card_names",
    "compare",
    "explain",
    "machine_names",
    "plan",
    "predict",
    "prepare",
    "probe",
    "replay",
    "report",
    "run",
    "runs",
    "share",
    "watch",
]


def load_ipython_extension(shell: object) -> None:
    """Add the cell magic `%%brimful`, and show why the last kernel was killed: `%load_ext brimful`."""
    from brimful._notebook import load

    load(shell)
