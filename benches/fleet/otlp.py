"""Whether a real OpenTelemetry collector takes the metrics of a run.

    pip install rotel
    python benches/fleet/otlp.py

Starts Rotel (a collector in Rust, on loopback), runs a command below `brimful run --otlp`, and prints how
many requests and metrics Rotel has received. Needs `brimful`.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time


def collector():
    """The path of Rotel's program, which its package does not put on PATH."""
    import rotel

    path = pathlib.Path(rotel.__file__).with_name("rotel-agent")
    path.chmod(0o755)
    return path


def main():
    """Print what the collector has received."""
    with tempfile.TemporaryDirectory(prefix="brimful-otlp-") as folder:
        log = pathlib.Path(folder) / "rotel.log"
        command = [collector(), "start", "--exporter", "blackhole", "--debug-log", "metrics"]
        with log.open("w") as out:
            running = subprocess.Popen(
                [*command, "--otlp-http-endpoint", "127.0.0.1:43180"], stdout=out, stderr=subprocess.STDOUT
            )
        try:
            time.sleep(3)
            subprocess.run(
                [
                    shutil.which("brimful") or "brimful",
                    "run",
                    "--otlp=http://127.0.0.1:43180",
                    "--state-dir",
                    folder,
                    "--",
                    "sleep",
                    "12",
                ],
                check=True,
                env=os.environ | {"OTEL_METRIC_EXPORT_INTERVAL": "2000"},
            )
            time.sleep(1)
        finally:
            running.terminate()
            running.wait()
        text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text())
    counts = [int(count) for count in re.findall(r"Received metrics.*?\bmetrics=(\d+)", text)]
    print(f"{len(counts)} requests, {min(counts, default=0)} to {max(counts, default=0)} metrics each")
    sys.exit(not counts)


if __name__ == "__main__":
    main()
