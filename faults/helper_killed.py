"""Starts a helper that takes all memory and is killed by the kernel; goes on without it and ends well."""

import subprocess
import sys
from pathlib import Path

helper = subprocess.run([sys.executable, Path(__file__).with_name("burst.py")], check=False)  # noqa: S603
print(f"the helper ended with {helper.returncode}, trained without it")
