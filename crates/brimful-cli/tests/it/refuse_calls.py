"""Start a command that may not make some system calls, as in a container: NAMES COMMAND...

NAMES is `unshare`, or `unshare,landlock`: the first is refused, the second is not known to the kernel.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

UNSHARE = {"x86_64": 272, "aarch64": 97}[platform.machine()]
LANDLOCK_CREATE_RULESET = 444

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
LOAD_WORD = 0x20
JUMP_IF_EQUAL = 0x15
RETURN = 0x06
ALLOW = 0x7FFF0000
ERROR = 0x00050000

names = sys.argv[1].split(",")
answers = []
if "unshare" in names:
    answers.append((UNSHARE, errno.EPERM))
if "landlock" in names:
    answers.append((LANDLOCK_CREATE_RULESET, errno.ENOSYS))

# The number of the call is the first word of what a filter sees.
instructions = [(LOAD_WORD, 0, 0, 0)]
for number, error in answers:
    instructions.append((JUMP_IF_EQUAL, 0, 1, number))
    instructions.append((RETURN, 0, 0, ERROR | error))
instructions.append((RETURN, 0, 0, ALLOW))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in instructions))


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


libc = ctypes.CDLL(None, use_errno=True)
program = Program(len(instructions), ctypes.addressof(code))
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
    raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
    raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")
os.execvp(sys.argv[2], sys.argv[2:])
