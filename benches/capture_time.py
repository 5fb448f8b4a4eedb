"""How much longer a rehearsal takes because the operators of one more step are captured.

    python benches/capture_time.py PYTHON [SCRIPT...]

Interleaved predictions with and without the captured step, for one GPU. PYTHON needs torch, and transformers
for one of the examples. Needs `brimful` on PATH, or its path in BRIMFUL.
"""

import os
import statistics
import sys

from predict_time import ROUNDS, seconds

SCRIPTS = ("examples/resnet50.py", "examples/gpt2_amp.py", "examples/hf_trainer.py")
SWITCH = "BRIMFUL_REHEARSAL_WITHOUT_SPEED"


def main() -> None:
    """Measure and print."""
    python = sys.argv[1]
    program = os.environ.get("BRIMFUL", "brimful")
    for script in sys.argv[2:] or SCRIPTS:
        ratios, differences = [], []
        for _ in range(ROUNDS):
            command = [program, "predict", "--gpu", "l4", "--", python, script]
            os.environ[SWITCH] = "1"
            without = seconds(command)
            del os.environ[SWITCH]
            captured = seconds(command)
            ratios.append(captured / without)
            differences.append(captured - without)
        print(
            f"{script}: {statistics.median(ratios):.2f} times as long with the captured step "
            f"({min(ratios):.2f} to {max(ratios):.2f}), {statistics.median(differences):.2f} s more"
        )


if __name__ == "__main__":
    main()
