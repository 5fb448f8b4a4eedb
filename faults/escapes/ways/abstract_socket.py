"""Connect to a socket of this machine that has a name and no path."""

import socket

from way import ABSTRACT, attempt

KIND = "services"
EXPECTED = {"overlay": "denied", "redirect": "denied"}

attempt(lambda: socket.socket(socket.AF_UNIX).connect(ABSTRACT))
