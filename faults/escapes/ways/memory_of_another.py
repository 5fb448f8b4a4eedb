"""Write into another process's memory, attach to it, and take its descriptors."""

import ctypes
import os
from pathlib import Path

from way import LIBC, PID, all_of, attempt, checked

KIND = "processes"
EXPECTED = {"overlay": "absent", "redirect": "denied"}
PTRACE_SEIZE, PIDFD_GETFD = 0x4206, 438


def write_memory() -> None:
    with Path(f"/proc/{PID}/mem").open("r+b") as memory:
        memory.seek(0x1000)
        memory.write(b"EVIL")


attempt(
    all_of(
        lambda: checked(LIBC.ptrace(PTRACE_SEIZE, PID, None, None)),
        lambda: checked(LIBC.syscall(PIDFD_GETFD, os.pidfd_open(PID), 0, 0)),
        lambda: checked(
            LIBC.process_vm_writev(
                PID, ctypes.create_string_buffer(16), 1, ctypes.create_string_buffer(16), 1, 0
            )
        ),
        write_memory,
    )
)
