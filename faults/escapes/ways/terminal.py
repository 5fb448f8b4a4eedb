"""Change the settings of the caller's terminal."""

import os
import signal
import termios

from way import attempt, opened

KIND = "descriptors and terminal"
EXPECTED = {"overlay": "absent", "redirect": "absent"}


def do() -> None:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with opened("/dev/tty", os.O_RDWR) as terminal:
        settings = termios.tcgetattr(terminal)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(terminal, termios.TCSANOW, settings)


attempt(do)
