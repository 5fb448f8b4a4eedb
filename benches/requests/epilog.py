"""Let jobs of a real Slurm on this machine die, and read what the epilog has stored about them.

    python benches/requests/epilog.py

Needs root, Debian's packages slurm-wlm, munge, slurmdbd and mariadb-server (all started here, in a temporary
directory and on free ports of loopback), cgroup v1 with the memory controller, and an environment with
brimful. Slurm limits the memory of the jobs with cgroups. The jobs belong to `nobody`: one whose training
process the kernel kills, one that is killed with everything in it, one element of an array, one that
finishes and one without brimful. Then the epilog must end with 0 where brimful is missing or hangs.
"""

import base64
import contextlib
import gzip
import json
import pathlib
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "prepare"))

from ray_kills import PROGRAM, until
from slurm import CONFIGURATION, JOBS_TIMEOUT, Slurm, free_ports

ROOT = pathlib.Path(__file__).parents[2]
USER = "nobody"
ACCOUNTED = """
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting_port}
AccountingStoragePass={folder}/munge.socket
AccountingStoreFlags=job_comment
Epilog={folder}/epilog/epilog.sh
"""
CGROUPS = (
    "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n"
)
ACCOUNTING = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounting_port}
SlurmUser=root
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""
# Everything in the job's cgroup at once, as the kernel does where memory.oom.group is set.
IN_JOB = "$(find /sys/fs/cgroup/memory -path */job_$SLURM_JOB_ID/* -name cgroup.procs)"
KILL_ALL = f"sleep 2; /bin/kill -KILL $(cat {IN_JOB}); sleep 60"
LEAK = f"python3 {ROOT}/faults/slow_leak.py"


class AccountedSlurm(Slurm):
    """Slurm with memory limits, slurmdbd, a database and the epilog."""

    def __init__(self, folder):
        self.accounting_port, self.database_port = free_ports(2)
        self.password = secrets.token_hex()
        named = {"accounting_port": self.accounting_port, "folder": folder}
        super().__init__(folder, CONFIGURATION + ACCOUNTED.format(**named))
        (folder / "cgroup.conf").write_text(CGROUPS)
        conf = folder / "slurmdbd.conf"
        conf.write_text(ACCOUNTING.format(database_port=self.database_port, password=self.password, **named))
        conf.chmod(0o600)
        shutil.copytree(ROOT / "integrations/slurm", folder / "epilog")
        # The program of this environment may be where other users cannot read.
        shutil.copy(PROGRAM, folder / "brimful")
        settings = f"BRIMFUL={folder}/brimful\nBRIMFUL_STATE_DIR={folder}/records\n"
        (folder / "epilog/epilog.conf").write_text(settings)
        (folder / "records").mkdir()
        (folder / "records").chmod(0o1777)

    def daemon(self, name, *options):
        """Start a daemon; the database and slurmdbd before slurmctld."""
        if name == "slurmctld":
            self.start_accounting()
        super().daemon(name, *options)

    def start_accounting(self):
        """Start the database and slurmdbd, and make the cluster known to it."""
        data = f"--datadir={self.folder}/database"
        line = ["mariadb-install-db", data, "--user=root", "--auth-root-authentication-method=normal"]
        subprocess.run(
            [*line, "--no-defaults"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        place = f"--socket={self.folder}/database.socket"
        options = ("--user=root", place, f"--port={self.database_port}", "--bind-address=127.0.0.1")
        super().daemon("mariadbd", "--no-defaults", data, *options)
        grant = f"grant all on *.* to slurm@localhost identified by '{self.password}'"
        client = ["mariadb", "--no-defaults", place, "--user=root", f"--execute={grant}"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.until(lambda: subprocess.run(client, check=False, **quiet).returncode == 0)
        super().daemon("slurmdbd", "-D")
        self.until(lambda: "test" in self.output("sacctmgr", "-i", "add", "cluster", "test"))

    def submit(self, *command, options=()):
        """Run a command as a job of another user, and wait until it and its epilog have ended."""
        script = self.folder / "script"
        state = f"export BRIMFUL_STATE_DIR={self.folder}/records"
        script.write_text(f"#!/bin/sh\n{state}\n{' '.join(command)}\n")
        line = ["sbatch", "--parsable", f"--uid={USER}", "--chdir=/tmp", "--mem=160M", "--output=/dev/null"]
        job = self.output(*line, *options, script)
        if not job.isdigit():
            raise SystemExit(f"sbatch printed {job!r}, expected the number of a job")
        until(lambda: not self.jobs(f"--jobs={job}", "--states=PD,R,CG"), JOBS_TIMEOUT, f"job {job}")
        return job

    def comment(self, job):
        """Return the state of a job, and its comment in the accounting."""
        state, _, comment = self.output("sacct", "-nPX", "-o", "State,AdminComment", "-j", job).partition("|")
        return state, comment

    def stop(self):
        """Stop everything, and remove the cgroups that slurmd leaves."""
        super().stop()
        host = socket.gethostname().split(".")[0]
        for controller in ("memory", "cpuacct"):
            place = pathlib.Path("/sys/fs/cgroup") / controller / f"slurm_{host}"
            for left in [*sorted(place.rglob("*/"), reverse=True), place]:
                with contextlib.suppress(OSError):
                    left.rmdir()


def decoded(comment):
    """Return the verdict in a comment, or nothing."""
    if not comment.startswith("bf1:"):
        return None
    text = comment.rsplit(":", 1)[1].upper()
    return json.loads(gzip.decompress(base64.b32decode(text + "=" * (-len(text) % 8))))


def check(slurm, name, expected, *command):
    """Return true if a job has a comment with the expected cause, or none."""
    return has(slurm, name, slurm.submit(*command), expected)


def check_array(slurm, command):
    """Return true if the comments of an array are those of its elements: the second one finishes."""
    job = slurm.submit(f"test $SLURM_ARRAY_TASK_ID = 2 || {command}", options=("--array=1-3",))
    causes = enumerate(("host_oom_kill", None, "host_oom_kill"), 1)
    good = [has(slurm, "element of an array", f"{job}_{at}", cause) for at, cause in causes]
    return all(good)


def has(slurm, name, job, expected):
    """Print the comment of a job, and return true if it has the expected cause."""
    state, comment = slurm.comment(job)
    verdict = decoded(comment)
    print(f"{name}: job {job} {state}\n  {comment or 'no comment'}\n  {verdict}", flush=True)
    found = verdict["cause"] if verdict else None
    if found != expected:
        print(f"expected {expected}, found {found}")
    return found == expected


def check_failures(slurm):
    """Return true if the epilog ends with 0 and in time, whatever brimful does."""
    good = True
    for name, text in (
        ("missing", None),
        ("hangs", "#!/bin/sh\nsleep 1000\n"),
        ("prints text", "#!/bin/sh\necho x\n"),
    ):
        program = slurm.folder / "brimful"
        program.unlink(missing_ok=True)
        if text:
            program.write_text(text)
            program.chmod(0o755)
        variables = {**slurm.environment, "SLURM_JOB_ID": "1", "SLURM_JOB_UID": "65534"}
        began = time.monotonic()
        done = subprocess.run([slurm.folder / "epilog/epilog.sh"], check=False, env=variables, timeout=60)
        seconds = time.monotonic() - began
        print(f"brimful {name}: exit code {done.returncode} after {seconds:.1f} s", flush=True)
        good &= done.returncode == 0 and seconds < 41
    return good


def main():
    """Run the jobs and print their comments."""
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as scratch:
        slurm = AccountedSlurm(pathlib.Path(scratch) / "slurm")
        run = f"{slurm.folder}/brimful run -q --"
        try:
            slurm.start()
            good = check(slurm, "killed by the kernel", "host_oom_kill", run, LEAK)
            good &= check(slurm, "killed with everything", "ambiguous", run, f"{LEAK} & {KILL_ALL}")
            good &= check_array(slurm, f"{run} {LEAK}")
            good &= check(slurm, "finished", None, run, "true")
            good &= check(slurm, "without brimful", None, "false")
            good &= check_failures(slurm)
        finally:
            slurm.stop()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
