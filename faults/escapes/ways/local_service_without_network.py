"""Talk to a service of this machine with `--network none`."""

import socket

from way import PORT, attempt

KIND = "services without a network"
EXPECTED = {"overlay": "absent", "redirect": "absent"}
OPTIONS = ["--network", "none"]

attempt(lambda: socket.create_connection(("127.0.0.1", PORT), 5).sendall(b"EVIL"))
