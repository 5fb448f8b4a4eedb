"""How long a prediction takes, beside importing torch and building the model.

python benches/predict_time.py PYTHON
Interleaved runs of both, so that a busy machine slows both down. Needs `brimful` on PATH, or its path in
BRIMFUL.
"""

import os
import statistics
import subprocess
import sys
import time

ROUNDS = 5
CARDS = "t4,l4,a100-40"


def seconds(command: list[str]) -> float:
    """Run a command to its end."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    python = sys.argv[1]
    program = os.environ.get("BRIMFUL", "brimful")
    for script in ("examples/resnet50.py", "examples/gpt2_amp.py"):
        built, predicted = [], []
        for _ in range(ROUNDS):
            # Without a step: torch is imported, the model is built, nothing else.
            built.append(seconds([python, script, "--steps", "0"]))
            predicted.append(seconds([program, "predict", "--gpu", CARDS, "--", python, script]))
        ratios = [after / before for before, after in zip(built, predicted, strict=True)]
        print(
            f"{script}: import and build {statistics.median(built):.2f} s, "
            f"prediction for {CARDS} {statistics.median(predicted):.2f} s, "
            f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
