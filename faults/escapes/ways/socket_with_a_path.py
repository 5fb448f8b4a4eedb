"""Connect to a socket of this machine by its path with `--network none`, also past libc."""

import ctypes
import os
import socket

from way import LIBC, SOCKET, all_of, attempt, checked

KIND = "services without a network"
EXPECTED = {"overlay": "denied|absent", "redirect": "denied|absent"}
OPTIONS = ["--network", "none"]
CONNECT = {"x86_64": 42, "aarch64": 203}[os.uname().machine]

unix = socket.socket(socket.AF_UNIX)
address = ctypes.create_string_buffer(b"\x01\x00" + SOCKET.encode() + b"\0")
attempt(
    all_of(
        lambda: unix.connect(SOCKET),
        lambda: checked(LIBC.syscall(CONNECT, unix.fileno(), address, len(SOCKET) + 3)),
    )
)
