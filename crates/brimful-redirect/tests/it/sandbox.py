"""Runs a command whose writes outside of some directories the kernel denies, as a rehearsal does.

``sandbox.py TOKEN DIRECTORY... -- COMMAND...``: Landlock allows writes below the directories and to a few devices
only, and a seccomp filter allows `chmod` and its like only with the token as the sixth argument. Prints a line and
goes on where the kernel has no Landlock.
"""

import ctypes
import os
import platform
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
# WRITE_FILE, and everything from REMOVE_DIR to MAKE_SYM. REFER and TRUNCATE came with later versions.
WRITES = (1 << 1) | sum(1 << bit for bit in range(4, 13))
DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts"]
GUARDED = [90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452]


def call(number: int, *arguments: object) -> int:
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def deny_writes(directories: list[str]) -> None:
    version = call(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    handled = WRITES | (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)
    attribute = ctypes.create_string_buffer(struct.pack("Q", handled), 8)
    ruleset = call(CREATE_RULESET, attribute, ctypes.c_size_t(8), ctypes.c_uint(0))
    for path in [*directories, *DEVICES]:
        fd = os.open(path, os.O_PATH)
        # Of a file, only its contents can be written.
        allowed = handled if os.path.isdir(path) else handled & (1 << 1 | 1 << 14)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, fd), 12)
        call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0))
        os.close(fd)
    call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))


def guard_attributes(token: int) -> None:
    load, equal, answer = 0x20, 0x15, 0x06
    body = [(load, 0, 0, 0)]
    for i, number in enumerate(GUARDED):
        # To the check of the token, behind the remaining numbers and the permission.
        body.append((equal, len(GUARDED) - i, 0, number))
    body.append((answer, 0, 0, 0x7FFF0000))
    body += [
        (load, 0, 0, 56),
        (equal, 0, 3, token & 0xFFFFFFFF),
        (load, 0, 0, 60),
        (equal, 0, 1, token >> 32),
    ]
    body += [(answer, 0, 0, 0x7FFF0000), (answer, 0, 0, 0x00050001)]
    code = b"".join(struct.pack("HBBI", *line) for line in body)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(body), ctypes.addressof(buffer))
    if LIBC.prctl(22, 2, ctypes.create_string_buffer(program, len(program)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def main() -> None:
    end = sys.argv.index("--")
    token, directories, command = int(sys.argv[1], 16), sys.argv[2:end], sys.argv[end + 1 :]
    LIBC.prctl(38, 1, 0, 0, 0)
    try:
        deny_writes(directories)
        if platform.machine() == "x86_64":
            guard_attributes(token)
    except OSError as error:
        print(f"no sandbox on this kernel: {error}", file=sys.stderr)
    # Only the command is redirected, not this program.
    environment = dict(os.environ)
    environment["LD_PRELOAD"] = environment.pop("SANDBOX_PRELOAD", "")
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    main()
