"""Run the commands that the documents show, and write what they print into the documents.

    python docs/outputs.py [--only TEXT]

It runs every block of a document that follows the comment `<!-- run -->`, or `<!-- run: N lines -->` for the
first N lines of the output, and draws docs/images/report.svg. `brimful` and `python` are those on PATH; the
Python needs the CUDA build of torch, and transformers for one of the examples.

Verdicts and machines in documents are not run: `cargo xtask generate` renders them from recorded ones.
"""

from __future__ import annotations

import argparse
import html
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", "docs/guides/predict.md"]
BLOCK = re.compile(
    r"(<!-- run(?:: (\d+) lines)? -->\n```console\n)\$ (brimful [^\n]*)\n(.*?)(^```$)",
    re.DOTALL | re.MULTILINE,
)

COMMAND = "brimful predict --gpu t4,l4,a100-40 -- python examples/gpt2_amp.py"
VERDICT = "brimful explain fixtures/runs/dataloader-worker-killed/record.jsonl"
# Codes of the terminal, as colors that are readable on a dark background.
COLORS = {
    "31": "#ff7b72",
    "32": "#7ee787",
    "33": "#e3b341",
    "34": "#79c0ff",
    "35": "#d2a8ff",
    "36": "#76e3ea",
}
CODE = re.compile(r"\x1b\[([0-9;]*)m")


def output(command: str, *, color: str = "never") -> str:
    """Return what a command prints to standard output."""
    print(f"$ {command}", flush=True)
    words = shlex.split(command)
    words[1:1] = ["--color", color]
    # A prediction that fits no GPU ends with another exit code; what it prints is what the document shows.
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        raise SystemExit(f"{command} printed nothing and ended with {done.returncode}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def refresh(path: Path, only: str) -> None:
    """Run the marked commands of a document and replace their output."""

    def replaced(block: re.Match[str]) -> str:
        start, n_lines, command, _, end = block.groups()
        if only not in command:
            return block[0]
        lines = output(command).splitlines(keepends=True)
        return f"{start}$ {command}\n{''.join(lines[: int(n_lines or len(lines))])}{end}"

    path.write_text(BLOCK.sub(replaced, path.read_text()))


def spans(line: str) -> str:
    """Return one line of a terminal as SVG."""
    out, style = [], ""
    for at, part in enumerate(CODE.split(line)):
        if at % 2 == 0:
            text = html.escape(part)
            out.append(f'<tspan style="{style}">{text}</tspan>' if style and text else text)
            continue
        for code in part.split(";"):
            if code in {"", "0"}:
                style = ""
            elif code == "1":
                style += "font-weight:bold;"
            elif code == "2":
                style += "opacity:.65;"
            elif code in COLORS:
                style += f"fill:{COLORS[code]};"
    return "".join(out)


def picture(screens: list[tuple[str, str]]) -> str:
    """Return a window of a terminal with commands and their output."""
    lines = []
    for command, text in screens:
        lines += [f"\x1b[32m$\x1b[0m \x1b[1m{command}\x1b[0m", *text.splitlines(), ""]
    width, height = 720, 21 * len(lines) + 40
    rows = "".join(
        f'<text xml:space="preserve" x="20" y="{52 + 21 * at}">{spans(line)}</text>\n'
        for at, line in enumerate(lines)
        if line
    )
    dots = "".join(
        f'<circle cx="{22 + 20 * at}" cy="19" r="6" fill="{color}"/>'
        for at, color in enumerate(["#ff5f57", "#febc2e", "#28c840"])
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}">\n'
        "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        "fill:#e6edf3;white-space:pre}</style>\n"
        f'<rect width="{width}" height="{height}" rx="10" fill="#0d1117" stroke="#30363d"/>\n'
        f"{dots}\n{rows}</svg>\n"
    )


def main() -> None:
    """Refresh every document and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="only commands that contain this text")
    only = parser.parse_args().only
    for name in DOCUMENTS:
        refresh(ROOT / name, only)
    # Without the first line, whose time depends on the machine.
    prediction = output(COMMAND, color="always").split("\n\n")
    verdict = output(VERDICT, color="always")
    screens = [(COMMAND, "\n\n".join(prediction[1:3])), ("brimful explain", verdict)]
    (ROOT / "docs/images/report.svg").write_text(picture(screens))


if __name__ == "__main__":
    main()
