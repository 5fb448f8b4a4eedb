"""How a call that would reach a service is left undone, and reported."""

import functools
import os

from brimful_common import printable, tell

MAX_REPORTS = 100
_reported = set()


def suppressed(what):
    """Report once that something was not done."""
    what = printable(what, 200)
    if what not in _reported and len(_reported) < MAX_REPORTS:
        _reported.add(what)
        tell(event="suppressed", what=what)


def problem(text):
    """Report a mistake of the hook: the call may then reach the service."""
    tell(event="problem", text=printable(f"a tracker could not be turned off: {text}", 500))


@functools.cache
def local_directory():
    """Return where trackers that must store something store it: removed after the rehearsal."""
    named = os.environ.get("BRIMFUL_TRACKERS")
    if not named:
        import tempfile

        return tempfile.mkdtemp(prefix="brimful-trackers-")
    os.makedirs(named, mode=0o700, exist_ok=True)
    return named


def is_remote(uri):
    """Whether a tracker's address names a service and not a file of this machine."""
    text = os.fspath(uri) if isinstance(uri, os.PathLike) else str(uri or "")
    scheme, separator, _ = text.partition(":")
    if text in {"databricks", "databricks-uc", "uc"}:
        return True
    return bool(separator) and scheme.lower() not in {"", "file", "sqlite"} and os.sep not in scheme


def replace(owner, name, make):
    """Put `make(original)` in place of a function or method, once; whether there was one."""
    original = vars(owner).get(name) if isinstance(owner, type) else getattr(owner, name, None)
    wrap = staticmethod if isinstance(original, staticmethod) else None
    if isinstance(original, classmethod):
        wrap = classmethod
    function = original.__func__ if wrap is not None else original
    if not callable(function):
        return False
    if not getattr(function, "_brimful_replaced", False):
        replacement = make(function)
        functools.update_wrapper(replacement, function)
        replacement._brimful_replaced = True
        setattr(owner, name, wrap(replacement) if wrap is not None else replacement)
    return True


def instead(what, result=None):
    """Make functions that do nothing; `result` is what they return, or is called with the arguments."""

    def make(_function):
        def undone(*arguments, **named):
            suppressed(what)
            return result(*arguments, **named) if callable(result) else result

        return undone

    return make


def forcing(what, **values):
    """Make functions that are called with these values in place of the caller's own."""

    def make(function):
        import inspect

        order = list(inspect.signature(function).parameters)

        def forced(*arguments, **named):
            suppressed(what)
            arguments = list(arguments)
            for name, value in values.items():
                place = order.index(name) if name in order else len(arguments)
                if place < len(arguments):
                    arguments[place] = value
                else:
                    named[name] = value
            return function(*arguments, **named)

        return forced

    return make
