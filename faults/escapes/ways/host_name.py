"""Change the host's name."""

import socket

from way import attempt

KIND = "machine"
EXPECTED = {"overlay": "done|denied", "redirect": "denied"}

attempt(lambda: socket.sethostname("evil"))
