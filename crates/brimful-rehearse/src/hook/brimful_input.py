"""A script that asks for input has nobody to answer it in a rehearsal: what it asked for is reported."""

import builtins
import functools

from brimful_common import printable, tell
from brimful_imports import IMPORTS

MAX_PROMPT = 200


def install():
    """Watch the questions that Python asks on a terminal."""
    builtins.input = _reporting(builtins.input)
    IMPORTS.after("getpass", _refuse_passwords, lambda text: tell(event="problem", text=text))


def _reporting(read):
    # Not refused at once: a program that another one of the script's feeds through a pipe gets its lines.
    @functools.wraps(read)
    def reading(prompt="", /):
        try:
            return read(prompt)
        except EOFError:
            report(prompt)
            raise

    return reading


def _refuse_passwords(module):
    # The original reads from the terminal, in spite of the closed standard input.
    @functools.wraps(module.getpass)
    def refusing(prompt="Password: ", *_, **__):
        report(prompt)
        raise EOFError("no input in a rehearsal")

    module.getpass = refusing


def report(prompt):
    tell(event="input", prompt=printable(prompt, MAX_PROMPT))
