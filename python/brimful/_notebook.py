"""`%load_ext brimful`: the cell magic `%%brimful`, and why the last kernel was killed."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from brimful import _native
from brimful._child import command_for, private_directory
from brimful._errors import BrimfulError, InputError
from brimful._explain import explanation
from brimful._run import Run, supervise

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType


class Cell:
    """The code of a cell with the variables that it uses, to be called in another process."""

    __slots__ = ("source", "variables")

    def __init__(self, source: str, variables: dict[str, Any]) -> None:
        """Keep both as they are."""
        self.source = source
        self.variables = variables

    def __call__(self) -> None:
        """Execute the code as a script would."""
        exec(compile(self.source, "<cell>", "exec"), {"__name__": "__main__", **self.variables})  # noqa: S102


def load(shell: Any) -> None:  # noqa: ANN401
    """Add the magic to IPython."""

    def brimful(line: str, cell: str) -> Run:
        """Run this cell in another process, watch its memory, and explain a failure.

        Options are those of the command `brimful run`, for example `%%brimful --on-pressure stop`. Functions,
        modules and other variables that the cell uses are copied; what it assigns stays in the other process.
        """
        return run_cell(cell, shlex.split(line), shell.user_ns)

    shell.register_magic_function(brimful, magic_kind="cell", magic_name="brimful")
    show_kill()


def show_kill() -> None:
    """Show why the last watched kernel of this directory was killed, once."""
    try:
        forms = _native.unshown_kill(directory=os.getcwd(), state_dir=None)  # noqa: PTH109
    except (BrimfulError, OSError):
        return
    if forms is not None:
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        print("brimful: the previous kernel in this directory was killed:")  # noqa: T201
        display(explanation(*forms))  # type: ignore[no-untyped-call, unused-ignore]


def run_cell(source: str, options: list[str], variables: dict[str, Any]) -> Run:
    """Run the code of a cell in another process."""
    code = compile(source, "<cell>", "exec")
    used = {name: variables[name] for name in sorted(set(_names(code))) if name in variables}
    if used:
        _check_copies(used)
    if "--" in options:
        raise InputError("the cell is the command: expected only options after %%brimful, found `--`", [])
    with private_directory() as folder:
        return supervise([*options, "--", *command_for(Cell(source, used), folder)], _state_dir(options))


def _names(code: CodeType) -> Iterator[str]:
    """All names that a cell may look up elsewhere."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield from _names(constant)


def _check_copies(variables: dict[str, Any]) -> None:
    """Name the variable that cannot be sent to another process."""
    try:
        import cloudpickle  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        raise InputError(
            f"the cell uses {', '.join(variables)}, and copying variables requires cloudpickle",
            ["pip install cloudpickle, or define everything inside the cell"],
        ) from error
    for name, value in variables.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:  # noqa: PERF203
            raise InputError(
                f"the variable `{name}` cannot be copied to another process: {error}",
                ["create it inside the cell"],
            ) from error


def _state_dir(options: list[str]) -> str | None:
    """Find where the run is recorded, if the options say so."""
    for at, option in enumerate(options):
        if option == "--state-dir" and at + 1 < len(options):
            return options[at + 1]
        if option.startswith("--state-dir="):
            return option.partition("=")[2]
    return None
