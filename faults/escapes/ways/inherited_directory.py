"""Write below a directory that the shell had opened."""

import os

from way import attempt

KIND = "descriptors and terminal"
EXPECTED = {"overlay": "absent", "redirect": "absent"}
DIRECTORY = 8

attempt(lambda: os.open("kept.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=DIRECTORY))
