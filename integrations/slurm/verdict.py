"""Print the verdict on the failed run of a Slurm job as epilog.sh stores it, or nothing if there is none.

    verdict.py PROGRAM JOB

Runs as the job's user, with the Python of the system and nothing else. The form is

    bf1:CAUSE:CONFIDENCE:BASE32

with the base32 of gzip of JSON: the run's ID and the verdict of `brimful explain --json`, without the command
and the evidence, which may quote the output of the program and are not for all who can see the job. sacctmgr
(22.05) makes every letter small, so base64 would be destroyed.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

# Newest first. A job that started more runs than this is explained by the last ones.
MAX_RUNS = 50
# The attempt is in one of the first lines of a record.
MAX_RECORD_BYTES = 1 << 20
TIMEOUT_SECONDS = 15
KEPT = ("cause", "confidence", "detail", "summary")
MAX_REMEDIES = 3
# Slurm takes more, but a comment is part of every answer about the job.
MAX_COMMENT = 4096


def main(program: str, job: str) -> None:
    """Print the comment."""
    for run in output(program, "runs", "--json", "--last", str(MAX_RUNS)):
        state_dir = Path(run["state_dir"])
        if run["state"] not in {"finished", "running"} and is_of_job(state_dir, run["id"], job):
            for explained in output(program, "explain", "--json", run["id"]):
                print(comment(run["id"], explained["verdict"]))
            return


def output(program: str, *line: str) -> list[dict[str, Any]]:
    """Return the runs of `runs`, each with its state directory, or the one document of `explain`."""
    named: dict[str, Any] = {"capture_output": True, "timeout": TIMEOUT_SECONDS}
    document = json.loads(subprocess.run([program, *line], check=True, **named).stdout)
    if "runs" not in document:
        return [document]
    return [{**run, "state_dir": document["state_dir"]} for run in document["runs"]]


def is_of_job(state_dir: Path, run: str, job: str) -> bool:
    """Return true if a run was in a cgroup of the job. Slurm names them job_ID."""
    # In a state directory that users share, each has a directory of their own.
    own = state_dir / f"uid-{os.getuid()}"
    with ((own if own.is_dir() else state_dir) / "runs" / run / "record.jsonl").open("rb") as record:
        text = record.read(MAX_RECORD_BYTES)
    for line in text.splitlines():
        if b'"line":"attempt"' in line[:64]:
            attempt = json.loads(line)
            places = f"{attempt.get('cgroup')} {attempt.get('limit_set_by')}"
            return re.search(rf"/job_{job}(?![0-9])", places) is not None
    return False


def comment(run: str, verdict: dict[str, Any]) -> str:
    """Return the verdict in the form that is stored, with fewer remedies or none if it would be too long."""
    for count in (MAX_REMEDIES, 0):
        remedies = [remedy["text"] for remedy in verdict["remedies"][:count]]
        stored = {"run": run, **{name: verdict[name] for name in KEPT}, "remedies": remedies}
        packed = gzip.compress(json.dumps(stored, separators=(",", ":")).encode(), mtime=0)
        head = f"bf1:{verdict['cause']}:{verdict['confidence']}:"
        text = head + base64.b32encode(packed).decode().rstrip("=").lower()
        if len(text) <= MAX_COMMENT:
            return text
    return head


if __name__ == "__main__":
    main(*sys.argv[1:])
