"""Parsers of arguments that are not built on argparse: hydra, OmegaConf, click, typer, fire and tyro.

Each is watched at the point where it knows everything that the command line may set. What it accepts is
written down in the same shape as for argparse, and the process ends there.
"""

import ast
import functools
import inspect
import re
import sys

from brimful_accepts import MAX_OPTIONS, MAX_TEXT, end, json_value, note_earlier, options_of, report_problem
from brimful_imports import IMPORTS

_MAX_DEPTH = 32


def watch():
    """Look at these parsers from now on."""
    IMPORTS.after("hydra._internal.hydra", _watch_hydra, report_problem)
    for click in ("click.core", "typer._click.core"):
        IMPORTS.after(click, _watch_click, report_problem)
    IMPORTS.after("fire.core", _watch_fire, report_problem)
    IMPORTS.after("omegaconf.omegaconf", _watch_omegaconf, report_problem)
    IMPORTS.after("omegaconf.basecontainer", _watch_merge_with, report_problem)
    IMPORTS.after("tyro._cli", _watch_tyro, report_problem)


def _watch_hydra(module):
    compose = module.Hydra.compose_config

    def compose_config(self, *arguments, **keywords):
        config = compose(self, *arguments, **keywords)
        caller = sys._getframe(1).f_code.co_name
        # `hydra.compose` has no command line behind it, and `--cfg` no training.
        if caller in {"run", "multirun"}:
            try:
                found = {"framework": "hydra", "options": _keys(config)}
            except Exception as error:
                report_problem(f"hydra: {error!r}")
            else:
                end(found)
        return config

    module.Hydra.compose_config = compose_config


def _keys(config):
    from omegaconf import OmegaConf

    values = OmegaConf.to_container(config, resolve=False)
    found = []
    if isinstance(values, dict):
        values.pop("hydra", None)
        _flatten(values, "", found, 0)
    return found


# What `OmegaConf.from_cli` has made: overrides that the script merges into its config.
_overrides = []


def _watch_omegaconf(module):
    from_cli, kind = module.OmegaConf.from_cli, module.OmegaConf

    @functools.wraps(from_cli)
    def watched(args_list=None):
        config = from_cli(args_list)
        if args_list is None or list(args_list) == sys.argv[1:]:
            _overrides.append(config)
            try:
                found = _keys(config)
            except Exception as error:
                report_problem(f"OmegaConf: {error!r}")
            else:
                # For a script that looks its values up in the overrides alone.
                if found:
                    note_earlier("argparse", found)
        return config

    kind.from_cli = staticmethod(watched)
    for name in ("merge", "unsafe_merge"):
        if hasattr(kind, name):
            setattr(kind, name, staticmethod(_watched_merge(getattr(kind, name))))


def _watched_merge(merge):
    @functools.wraps(merge)
    def watched(*configs):
        merged = merge(*configs)
        _end_at_merge(merged, configs)
        return merged

    return watched


def _watch_merge_with(module):
    kind = module.BaseContainer
    merge_with, merge_with_cli = kind.merge_with, kind.merge_with_cli

    @functools.wraps(merge_with)
    def watched(self, *others):
        merge_with(self, *others)
        _end_at_merge(self, others)

    @functools.wraps(merge_with_cli)
    def watched_cli(self):
        merge_with_cli(self)
        _end_at_merge(self, [self], from_cli=True)

    kind.merge_with, kind.merge_with_cli = watched, watched_cli


def _end_at_merge(merged, configs, from_cli=False):
    """End where the overrides of the command line have met the config: all keys are known."""
    if not from_cli and not any(config is known for config in configs for known in _overrides):
        return
    try:
        found = _keys(merged)
    except Exception as error:
        report_problem(f"OmegaConf: {error!r}")
        return
    end({"framework": "argparse", "options": found})


def _flatten(values, prefix, found, depth):
    for name, value in values.items():
        if not isinstance(name, str) or len(found) >= MAX_OPTIONS:
            continue
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            if depth < _MAX_DEPTH:
                _flatten(value, f"{key}.", found, depth + 1)
        elif len(key) <= MAX_TEXT and not isinstance(value, list) and not _refers(value):
            found.append(
                {
                    "flags": [key],
                    "dest": key,
                    "takes": "word" if isinstance(value, bool) else "value",
                    # `???` is a value that the user has to give.
                    "default": None if value == "???" else json_value(value),
                }
            )


def _refers(value):
    """Whether another key holds the value: `${train.batch_size}`."""
    return isinstance(value, str) and "${" in value


def _watch_click(module):
    parse = module.Command.parse_args

    def parse_args(self, ctx, args):
        try:
            found = _click_options(self, ctx, list(args))
        except Exception as error:
            report_problem(f"click: {error!r}")
        else:
            if found is not None:
                end({"framework": "argparse", "options": found})
        return parse(self, ctx, args)

    module.Command.parse_args = parse_args


def _click_options(command, context, arguments):
    """Return the options of the command that was typed; nothing for a group, whose subcommand follows."""
    typed = sys.argv[1:]
    if not set(arguments) <= set(typed) or (typed and not arguments and context.parent is None):
        return None  # something that a library runs for itself
    if hasattr(command, "list_commands") and arguments:
        return None
    options = [
        parameter
        for parameter in command.get_params(context)
        if getattr(parameter, "param_type_name", "") == "option" and parameter.name != "help"
    ]
    return [_click_option(option) for option in options[:MAX_OPTIONS]]


def _click_option(option):
    # The options of newer releases of typer have no type.
    kind = getattr(option, "type", None)
    choices = getattr(kind, "choices", None) or ()
    off = [flag for flag in option.secondary_opts if flag.startswith("--no-")]
    if getattr(option, "is_flag", False):
        takes = "nothing_off" if getattr(option, "flag_value", True) is False else "nothing"
        takes = "both" if off else takes
    else:
        takes = "word" if "Bool" in type(kind).__name__ else "value"
    default = option.default
    return {
        "flags": [str(flag)[:MAX_TEXT] for flag in (*option.opts, *off)],
        "dest": str(option.name)[:MAX_TEXT],
        "takes": takes,
        "default": None if callable(default) else json_value(default),
        "choices": [value for value in map(json_value, list(choices)[:64]) if value is not None],
        "help": str(getattr(option, "help", None) or "")[:MAX_TEXT],
    }


def _watch_fire(module):
    fire = module.Fire

    def watched(component=None, command=None, *arguments, **keywords):
        if command is None:
            try:
                target = component
                if target is None:
                    target = sys._getframe(1).f_globals
                found = _fire_options(target, sys.argv[1:])
            except Exception as error:
                report_problem(f"fire: {error!r}")
            else:
                end({"framework": "argparse", "options": found})
        return fire(component, command, *arguments, **keywords)

    module.Fire = watched


def _fire_options(target, words):
    """Return the parameters of the function, or of the class and its method, that the words lead to."""
    found = []
    names = [word for word in words if not word.startswith("-")]
    while True:
        if inspect.isclass(target):
            found += _parameters(target.__init__)
        elif inspect.isroutine(target):
            found += _parameters(target)
            break
        name = names.pop(0).replace("-", "_") if names else None
        if name is None:
            break
        following = target.get(name) if isinstance(target, dict) else getattr(target, name, None)
        if following is not None:
            target = following
    return found[:MAX_OPTIONS]


def _parameters(function):
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD} or parameter.name == "self":
            continue
        default = None if parameter.default is parameter.empty else parameter.default
        # Fire reads `false` as a text, which is true: only its flags without a value are safe.
        flag, takes = f"--{parameter.name}", "value"
        if default is False:
            takes = "nothing"
        elif default is True:
            flag, takes = f"--no{parameter.name}", "nothing_off"
        found.append(
            {"flags": [flag], "dest": parameter.name, "takes": takes, "default": json_value(default)}
        )
    return found


def _watch_tyro(module):
    implementation = module._cli_impl

    @functools.wraps(implementation)
    def watched(f, **keywords):
        words = keywords.get("args")
        if not keywords.get("return_parser") and (words is None or list(words) == sys.argv[1:]):
            try:
                found = _tyro_options(implementation(f, **{**keywords, "return_parser": True}))
            except Exception as error:
                report_problem(f"tyro: {error!r}")
            else:
                end({"framework": "argparse", "options": found})
        return implementation(f, **keywords)

    module._cli_impl = watched


def _tyro_options(parser):
    found = options_of(parser)[:MAX_OPTIONS]
    for option in found:
        # `data.num-workers` is the field `num_workers` of `data`.
        option["dest"] = option["dest"].rpartition("__tyro-dummy-inner__.")[2].replace("-", "_")
        if option["takes"] == "value":
            # tyro keeps a field's default apart, and shows it at the end of its help.
            shown = re.search(r"\(default: ([^()]*)\)\s*$", option["help"])
            option["default"] = _shown_value(shown.group(1)) if shown else None
        if option["takes"] == "both" and option["flags"][1:] != [f"--no-{option['flags'][0][2:]}"]:
            # The switch of a nested field is written otherwise: `--data.no-pin-memory`.
            on, off = option["flags"][0], option["flags"][-1]
            option["takes"] = "nothing_off" if option["default"] else "nothing"
            option["flags"] = [off if option["default"] else on]
    return found


def _shown_value(text):
    if text in {"None", ""}:
        return None
    try:
        return json_value(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return json_value(text)
