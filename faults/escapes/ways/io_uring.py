"""Set up io_uring, whose requests pass no filter."""

import ctypes

from way import LIBC, attempt, checked

KIND = "files"
EXPECTED = {"overlay": "done|denied", "redirect": "denied"}

attempt(lambda: checked(LIBC.syscall(425, 4, ctypes.create_string_buffer(256))))
