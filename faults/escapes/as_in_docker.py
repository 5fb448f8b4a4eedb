"""Start a command that may make the system calls that Docker's default filter leaves to it: COMMAND...

The filter of Docker allows a list; this one refuses what matters to isolation and is not on it, for a process
without the capability SYS_ADMIN.
"""

import ctypes
import os
import platform
import struct
import sys

# unshare, setns, mount, umount2, pivot_root, open_tree, move_mount, fsopen, fsconfig, fsmount, mount_setattr,
# io_uring_setup.
REFUSED = {
    "x86_64": [272, 308, 165, 166, 155, 428, 429, 430, 431, 432, 442, 425],
    "aarch64": [97, 268, 40, 39, 41, 428, 429, 430, 431, 432, 442, 425],
}[platform.machine()]
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
PR_SET_NO_NEW_PRIVS = 38
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, EPERM = 0x7FFF0000, 0x00050001

instructions = [(LOAD_WORD, 0, 0, 0)]
for number in REFUSED:
    instructions += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, EPERM)]
instructions.append((RETURN, 0, 0, ALLOW))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in instructions))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
    PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0
):
    raise OSError(ctypes.get_errno(), "the filter cannot be set")
os.execvp(sys.argv[1], sys.argv[1:])
