"""The prediction in the README is what the program prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_what_predict_prints() -> None:
    readme = (ROOT / "README.md").read_text()
    pattern = r"^```console\n\$ brimful (predict [^\n]*)\n[^\n]*\n(.*?)^```$"
    block = re.search(pattern, readme, re.DOTALL | re.MULTILINE)
    assert block is not None
    command, shown = block.groups()
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [programs / "brimful", *command.split(" ")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    # The first line has the version of torch and the time.
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines()[1:])
    assert printed.startswith(shown.rstrip("\n")), "run `python docs/outputs.py --only gpt2_amp`"
