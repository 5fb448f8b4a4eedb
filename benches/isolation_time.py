"""What isolation costs: rehearsals with each kind of it beside rehearsals without, in turns.

python benches/isolation_time.py PYTHON [PAIRS]
Needs `brimful` on PATH, or its path in BRIMFUL, and a Python with the CUDA build of torch. The script is
rehearsed in a directory of its own, since without isolation it writes for real.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = """\
import torch

model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.ones(64, 512).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.save(model.state_dict(), "last.pt")
"""


def seconds(program: str, python: str, option: list[str], directory: Path) -> float:
    """Rehearse once."""
    command = [program, "predict", "--gpu", "t4", *option, "--", python, "train.py"]
    start = time.perf_counter()
    subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    python = sys.argv[1]
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    program = os.environ.get("BRIMFUL", "brimful")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "train.py").write_text(SCRIPT, encoding="utf-8")
        ratios: dict[str, list[float]] = {"overlay": [], "redirect": []}
        for _ in range(pairs):
            for isolation, found in ratios.items():
                without = seconds(program, python, ["--allow-writes"], directory)
                isolated = seconds(program, python, ["--isolation", isolation], directory)
                found.append(isolated / without)
    for isolation, found in ratios.items():
        print(
            f"{isolation}: {statistics.median(found):.3f} times as long as without isolation "
            f"({min(found):.2f} to {max(found):.2f}, {len(found)} pairs)"
        )


if __name__ == "__main__":
    main()
