"""A function with knobs as a job: brimful plans its arguments, and restarts it with less memory."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brimful._child import command_of
from brimful._errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NOT_KNOBS = {"accumulation", "effective_batch", "checkpoint", "sacrifice"}


class FunctionJob:
    """A function, and what may change when it is called."""

    def __init__(
        self,
        training: Callable[..., object],
        knobs: Mapping[str, object],
        effective_batch: int | None,
        sacrifice: Sequence[str],
        checkpoints: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
    ) -> None:
        """Check what a job file would be wrong about, in the words of a caller."""
        self.training = training
        self.knobs = {name: _values(name, value) for name, value in knobs.items()}
        self.effective_batch = effective_batch
        self.sacrifice = [sacrifice] if isinstance(sacrifice, str) else list(sacrifice)
        if checkpoints is None:
            self.checkpoints: list[str] = []
        elif isinstance(checkpoints, (str, os.PathLike)):
            self.checkpoints = [str(checkpoints)]
        else:
            self.checkpoints = [str(pattern) for pattern in checkpoints]
        if not self.knobs:
            raise InputError(
                "expected at least one knob, found none", ['for example: {"workers": [4, 2, 0]}']
            )
        for name in self.knobs:
            if not (name.isascii() and name.isidentifier()) or name in _NOT_KNOBS:
                raise InputError(f"{name!r} cannot be a knob: expected the name of an argument", [])
        for name in self.sacrifice:
            if name not in self.knobs:
                raise InputError(f"sacrifice names {name!r}, which is not among the knobs", [])
        if self.has_batches and effective_batch is None:
            raise InputError(
                "micro_batch has several values, and effective_batch is missing",
                ["pass the number of samples per optimizer step, so that it stays the same"],
            )

    @property
    def has_batches(self) -> bool:
        """Whether the micro-batch may change, and with it the accumulation."""
        batches = self.knobs.get("micro_batch", [])
        return batches == "auto" or len(batches) > 1

    @property
    def accumulates(self) -> bool:
        """Whether the function gets the accumulation."""
        return "micro_batch" in self.knobs and self.effective_batch is not None

    @property
    def caller(self) -> Caller:
        """What is called in the process of the training."""
        return Caller(self.training, self.knobs, self.effective_batch if self.accumulates else None)

    def write(self, function: bytes, directory: str) -> str:
        """Write the pickled caller and the job file, and return the path of the job file."""
        passed = [name for name in self.knobs if name != "allocator"]
        command = [
            *command_of(function, getattr(self.training, "__name__", ""), directory),
            *(f"{name}={{{name}}}" for name in passed),
            *(["accumulation={accumulation}"] if self.accumulates else []),
        ]
        # Strings, numbers, booleans and lists are written alike in JSON and TOML, but for one escape.
        lines = ["[job]", f"command = {_toml([_braced(word, passed) for word in command])}"]
        if self.checkpoints:
            lines += [
                f"checkpoints = {_toml(self.checkpoints)}",
                'resume = ["checkpoint={checkpoint}"]',
            ]
        if self.effective_batch is not None:
            lines += ["[keep]", f"effective_batch = {_toml(self.effective_batch)}"]
        lines.append("[knobs]")
        lines += [f"{name} = {_toml(values)}" for name, values in self.knobs.items()]
        if self.sacrifice:
            lines.append(f"sacrifice = {_toml(self.sacrifice)}")
        path = Path(directory) / "brimful.toml"
        try:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        except UnicodeEncodeError as error:
            raise InputError(
                f"expected text in UTF-8, found {error.object[error.start : error.end]!r}", []
            ) from None
        return str(path)


class Caller:
    """Calls the function with the values that the command has, in the process of the training."""

    __slots__ = ("__name__", "effective_batch", "knobs", "training")

    def __init__(
        self, training: Callable[..., object], knobs: dict[str, Any], effective_batch: int | None
    ) -> None:
        """Keep all as they are."""
        self.training = training
        self.knobs = knobs
        self.effective_batch = effective_batch
        self.__name__ = getattr(training, "__name__", "function")

    def __call__(self, *words: str) -> object:
        """Call it with `workers=2` as the argument `workers`."""
        arguments = {}
        for word in words:
            name, _, text = word.partition("=")
            arguments[name] = text if name == "checkpoint" else _value(text, self.knobs.get(name, []))
        if "prefetch" in self.knobs:
            # Without workers there is no such argument of a DataLoader.
            arguments.setdefault("prefetch", None)
        if self.effective_batch is not None:
            arguments["accumulation"] = self.accumulation(arguments)
        return self.training(**arguments)

    def accumulation(self, arguments: Mapping[str, Any]) -> int:
        """Return how often gradients are added up, for the ranks that this process really belongs to.

        Before the first rehearsal, a plan assumes a rank for each GPU.
        """
        ranks = int(os.environ.get("WORLD_SIZE") or 1)
        assert self.effective_batch is not None  # noqa: S101
        times, rest = divmod(self.effective_batch, arguments["micro_batch"] * ranks)
        return int(arguments["accumulation"]) if rest or not times else times


def _values(name: str, value: object) -> Any:  # noqa: ANN401
    if value == "auto":
        return value
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if not values or not all(isinstance(one, (bool, int, float, str)) and _is_finite(one) for one in values):
        raise InputError(
            f'{name} must be "auto", a finite number, a string, a boolean or a list, not {value!r}',
            [],
        )
    return values


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _value(text: str, values: Any) -> object:  # noqa: ANN401
    """Return the value that was written as this text: 32, 32.0 and "32" are written alike."""
    for value in values if values != "auto" else []:
        if isinstance(value, bool):
            is_same = text == json.dumps(value)
        elif isinstance(value, float):
            is_same = _number(text) == value
        else:
            is_same = text == str(value)
        if is_same:
            return value
    try:
        return json.loads(text)
    except ValueError:
        return text


def _braced(word: str, passed: list[str]) -> str:
    """Keep braces of paths from being placeholders."""
    name, _, rest = word.partition("=")
    if rest == f"{{{name}}}" and (name in passed or name == "accumulation"):
        return word
    return word.replace("{", "{{").replace("}", "}}")


def _toml(value: object) -> str:
    # TOML escapes the delete character, which JSON does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
