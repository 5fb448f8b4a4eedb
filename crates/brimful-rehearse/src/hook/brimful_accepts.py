"""What a script accepts: waits for its parser of arguments, writes its options down and ends the process.

Works for argparse and what is built on it: HfArgumentParser, jsonargparse, LightningCLI, simple_parsing.
Other parsers are in `brimful_parsers.py`. Nothing of the script after its first look at the command line is
run.
"""

import argparse
import atexit
import json
import math
import os
import sys

from brimful_imports import IMPORTS

_RESULTS = os.environ["BRIMFUL_ACCEPTS"]

# Programs that start the script: their own options are not its own.
_LAUNCHERS = ("torch.distributed", "accelerate.", "deepspeed.launcher")

MAX_OPTIONS = 5000
MAX_TEXT = 500

# Of parsers that only looked for one option before the real one, as timm's scripts do for --config.
_earlier = []

# Calls with values that no option can change: `brimful_literals.py`.
hard_coded = []


def watch():
    """Look at every parser from now on."""
    parse = argparse.ArgumentParser._parse_known_args

    def parse_known(self, arg_strings, *rest, **keywords):
        try:
            _look(self, arg_strings)
        except Exception as error:
            report_problem(repr(error))
        return parse(self, arg_strings, *rest, **keywords)

    argparse.ArgumentParser._parse_known_args = parse_known
    IMPORTS.after("torch.optim.optimizer", _end_at_optimizer, report_problem)
    atexit.register(_finish)


def _look(parser, arguments):
    if _is_of_hydra():
        return  # its own options; the config is known later
    if os.path.basename(sys.argv[0]) in {"torchrun", "accelerate", "deepspeed"} or _is_launcher():
        return
    typed = sys.argv[1:]
    given = list(arguments or ())
    # A parser that reads a config file by itself takes the file's name away, and maybe nothing is left.
    is_left = given or _earlier or _framework(parser) == "hugging_face"
    if given != typed and not (is_left and set(given) <= set(typed)):
        # Something that a library parses for itself.
        return
    first = not parser.add_help and not _through_parse_args()
    options = options_of(parser)
    if first:
        note_earlier(_framework(parser), options)
        return
    seen = {flag for option in options for flag in option["flags"]}
    options += [option for option in _earlier if not seen & set(option["flags"])]
    end({"framework": _framework(parser), "options": options[:MAX_OPTIONS]})


def note_earlier(framework, options):
    """Keep what is known before the script has read all of its arguments."""
    _earlier.extend(options)
    _write({"framework": framework, "options": _earlier})


def _is_of_hydra():
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "hydra.main":
            return True
        frame = frame.f_back
    return False


def _is_launcher():
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return bool(spec and spec.name.startswith(_LAUNCHERS))


def _through_parse_args():
    """Whether somebody calls `parse_args`, which takes nothing that it does not know."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in {"parse_args", "parse_args_into_dataclasses"}:
            return True
        frame = frame.f_back
    return False


def _framework(parser):
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(parser).__mro__}
    if any(name.startswith(("transformers.", "trl.")) for name in names):
        return "hugging_face"
    has_lightning = "lightning" in sys.modules or "pytorch_lightning" in sys.modules
    if has_lightning and any(
        name.startswith(("jsonargparse.", "lightning.", "pytorch_lightning.")) for name in names
    ):
        return "lightning"
    return "argparse"


def options_of(parser):
    """Return the options of a parser of argparse, or of a copy of argparse as tyro has one."""
    found = []
    for action in parser._actions:
        kinds = {kind.__name__ for kind in type(action).__mro__}
        if "_SubParsersAction" in kinds:
            # The subcommand that was typed.
            for name in sys.argv[1:]:
                if name in action.choices:
                    found += options_of(action.choices[name])
                    break
        elif action.option_strings and not kinds & {"_HelpAction", "_VersionAction"}:
            found.append(_option(action))
    return found


def _option(action):
    choices = list(action.choices)[:64] if action.choices else []
    return {
        "flags": [str(flag)[:MAX_TEXT] for flag in action.option_strings],
        "dest": str(action.dest)[:MAX_TEXT],
        "takes": _takes(action),
        "default": json_value(action.default),
        "choices": [value for value in map(json_value, choices) if value is not None],
        "help": _help(action.help),
    }


def _help(text):
    # A text that simple_parsing puts where there is none.
    return "" if text in {None, argparse.SUPPRESS, "<__TEMP__>"} else str(text)[:MAX_TEXT]


def _takes(action):
    # By name: other parsers have classes of their own for the same.
    kind = type(action).__name__
    if "BooleanOptional" in kind or "YesNo" in kind:
        return "both"
    if action.nargs == 0:
        return "nothing_off" if getattr(action, "const", None) is False else "nothing"
    if action.type is bool:
        return "any_text"
    hint = getattr(action, "_typehint", None)
    if hint is bool or getattr(action.type, "__name__", "") in {"string_to_bool", "str2bool", "strtobool"}:
        return "word"
    return "value"


def json_value(value):
    """Return what JSON and a command line have, else nothing."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 62 else None
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "value") and isinstance(value.value, str):
        value = value.value  # an enumeration
    if isinstance(value, (str, os.PathLike)):
        text = os.fspath(value)
        if (
            isinstance(text, str)
            and value is not argparse.SUPPRESS
            and "\0" not in text
            and len(text) <= MAX_TEXT
        ):
            return str(text)
    return None


def _end_at_optimizer(module):
    """End a script that makes an optimizer: it is past its arguments, with a parser that is not watched."""
    start = module.Optimizer.__init__

    def made(*arguments, **keywords):
        if not _is_launcher():
            if _earlier:
                end({"framework": "argparse", "options": _earlier})
            end({"problem": "an optimizer was made", "hard_coded": hard_coded})
        return start(*arguments, **keywords)

    module.Optimizer.__init__ = made


def report_problem(text):
    """Keep a mistake of ours for somebody who looks, unless something better is known."""
    if not _earlier:
        _write({"problem": text, "hard_coded": hard_coded})


def _finish():
    """Write down what is hard-coded in a script that ended by itself."""
    if hard_coded and not _earlier:
        _write({"problem": "the script ended", "hard_coded": hard_coded})


def _private(path, flags):
    """Open a file that only this user can read, whatever the umask is."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _write(found):
    temporary = f"{_RESULTS}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8", errors="replace", opener=_private) as file:
        json.dump(found, file)
    os.replace(temporary, _RESULTS)


def end(found):
    """Write down what was found and end the process."""
    _write(found)
    with open(os.path.splitext(_RESULTS)[0] + ".done", "w", encoding="utf-8", opener=_private):
        pass
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
