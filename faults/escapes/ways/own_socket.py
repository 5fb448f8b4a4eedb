"""Connect to a socket of one's own with `--network none`."""

import socket

from way import TREE, attempt

KIND = "services without a network"
EXPECTED = {"overlay": "done", "redirect": "done"}
OPTIONS = ["--network", "none"]


def do() -> None:
    path = str(TREE / "work/own.sock")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as connection:
        listener.bind(path)
        listener.listen()
        connection.connect(path)


attempt(do)
