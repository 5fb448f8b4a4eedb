"""The figures without a CUDA build of torch, beside those on the phantom, for the same scripts.

python benches/without_cuda/compare.py PYTHON [PART OF A NAME]
PYTHON has the CUDA build of torch with torchvision and transformers; for the second figure it is taken for
one without CUDA. Needs `brimful` on PATH, or its path in BRIMFUL. Prints a table in Markdown and the spread.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE.parent.parent / "examples"
CARDS = "t4,a100-40,h100"
CASES = [
    *[
        f"train.py {model} --batch {batch} --optimizer {optimizer} --precision {precision}"
        for model, batch in (("mlp", 4096), ("resnet18", 64), ("resnet50", 32), ("gpt2", 8))
        for optimizer in ("sgd", "adamw")
        for precision in ("fp32", "bf16")
    ],
    "train.py resnet50 --batch 32 --precision fp16",
    "train.py vgg16 --batch 32",
    "train.py mobilenet_v3_large --batch 32",
    "train.py convnext_tiny --batch 16 --precision bf16",
    "train.py vit_b_16 --batch 16",
    "train.py vit_b_16 --batch 16 --precision bf16",
    "train.py bert --batch 8 --precision fp16",
    "train.py llama --batch 4 --precision bf16 --accumulate 2",
    "train.py lstm --batch 64",
    "gpt2_amp.py --batch-size 4",
    "gpt2_amp.py --batch-size 2 --accumulate 2",
    "resnet50.py --batch-size 64",
    "hf_trainer.py",
]


def predicted(python: str, command: list[str], *, without_cuda: bool) -> dict | None:
    """Ask for a prediction."""
    program = os.environ.get("BRIMFUL", "brimful")
    env = {**os.environ, "BRIMFUL_REHEARSAL_WITHOUT_CUDA": "1" if without_cuda else "0"}
    done = subprocess.run(
        [program, "predict", "--json", "--gpu", CARDS, "--", python, *command],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    return json.loads(done.stdout) if done.returncode in (0, 99) else None


def main() -> None:
    """Measure and print."""
    python, part = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    allocated, reserved = [], []
    print("| script | card | allocated, phantom | without CUDA | reserved, phantom | without CUDA |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        script, *arguments = case.split()
        name = case.replace("train.py ", "").replace("--", "")
        if part not in name:
            continue
        path = EXAMPLES / script if (EXAMPLES / script).exists() else HERE / script
        both = [predicted(python, [str(path), *arguments], without_cuda=without) for without in (False, True)]
        if None in both:
            print(f"| {name} | failed: {[found is None for found in both]} |", flush=True)
            continue
        by_name = {card["name"]: card for card in both[1]["gpus"]}
        for phantom in both[0]["gpus"]:  # the others died of something else than memory
            without = by_name[phantom["name"]]
            ratios = [
                without[figure] / phantom[figure] - 1
                for figure in ("peak_allocated_bytes", "peak_reserved_bytes")
            ]
            allocated.append(ratios[0])
            reserved.append(ratios[1])
            cells = [
                f"{phantom['peak_allocated_bytes'] >> 20:,} MiB",
                f"{ratios[0]:+.1%}",
                f"{phantom['peak_reserved_bytes'] >> 20:,} MiB",
                f"{ratios[1]:+.1%}",
            ]
            print(f"| {name} | {phantom['name']} | {' | '.join(cells)} |", flush=True)
    for figure, ratios in (("allocated", allocated), ("reserved", reserved)):
        print(f"{figure}: {min(ratios):+.1%} to {max(ratios):+.1%}, median {statistics.median(ratios):+.1%}")


if __name__ == "__main__":
    main()
