"""Talk to a service of this machine."""

import socket

from way import PORT, attempt

KIND = "services"
EXPECTED = {"overlay": "done", "redirect": "done"}
# It is listed, not kept away.
CHANGES = ["posts"]

attempt(lambda: socket.create_connection(("127.0.0.1", PORT), 5).sendall(b"EVIL"))
