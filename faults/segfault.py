"""Reads address 0, as a broken extension does. Dies of SIGSEGV; nothing about memory running out."""

import ctypes

ctypes.string_at(0)
