"""Prepare on a real Slurm on this machine, kill array elements, run it again, and compare the digests.

    python benches/prepare/slurm.py

Needs root, Debian's packages slurm-wlm and munge (started here, in a temporary directory and on free ports of
loopback; an installed configuration is not used), and an environment with brimful and tokenizers. Prints what
the commands print and which jobs are left in the queue after an element failed.
"""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from ray_kills import PROGRAM, inputs, processes, until

# In seconds. Slurm starts jobs only every few seconds.
START_TIMEOUT, JOBS_TIMEOUT = 60, 300
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count):
    """Return ports of loopback that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Slurm:
    """Slurm with one node, in a directory."""

    def __init__(self, folder, configuration=CONFIGURATION):
        self.folder, self.daemons = folder, []
        # munged requires that everybody can reach its socket.
        folder.parent.chmod(0o755)
        for name in (".", "state", "spool"):
            (folder / name).mkdir(exist_ok=True)
        (folder / "munge.key").write_bytes(secrets.token_bytes(128))
        (folder / "munge.key").chmod(0o600)
        controller_port, node_port = free_ports(2)
        named = {"controller_port": controller_port, "node_port": node_port, "folder": folder}
        host = socket.gethostname().split(".")[0]
        (folder / "slurm.conf").write_text(configuration.format(host=host, **named))
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self):
        """Start the daemons and wait until the node accepts jobs."""
        files = {name: f"{name}-file" for name in ("key", "pid", "log", "seed")} | {"socket": "socket"}
        options = [f"--{option}={self.folder}/munge.{name}" for name, option in files.items()]
        self.daemon("munged", "--foreground", *options)
        self.until((self.folder / "munge.socket").exists)
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D")
        self.until(lambda: self.output("sinfo", "-h", "-o", "%T") == "idle")

    def until(self, condition):
        """Wait for a condition while all daemons run."""
        until(lambda: condition() or self.ended(), START_TIMEOUT, "start of Slurm")
        for daemon in self.ended():
            log = self.folder / f"{pathlib.Path(daemon.args[0]).name}.log"
            raise SystemExit(f"{daemon.args[0]} ended:\n{log.read_text()[-3000:]}")

    def ended(self):
        """Return the daemons that have ended."""
        return [daemon for daemon in self.daemons if daemon.poll() is not None]

    def daemon(self, name, *options):
        """Start a daemon in the foreground of a session of its own."""
        with (self.folder / f"{name}.log").open("w") as log:
            line = [shutil.which(name) or f"/usr/sbin/{name}", *options]
            named = {"env": self.environment, "cwd": self.folder, "start_new_session": True}
            self.daemons.append(subprocess.Popen(line, stdout=log, stderr=log, **named))

    def output(self, *line):
        """Return what a command of Slurm prints."""
        named = {"env": self.environment, "capture_output": True, "text": True, "timeout": 60}
        return subprocess.run(line, check=False, **named).stdout.strip()

    def jobs(self, *options):
        """Return identifier, name, state and reason of all jobs; elements of an array separately."""
        listed = self.output("squeue", "-h", "-r", "-o", "%i %j %T %r", *options)
        return [line.split(maxsplit=3) for line in listed.splitlines()]

    def stopped(self):
        """Return true if no job runs or will run. Jobs after a failed one may be left."""
        jobs = self.jobs()
        stuck = any(reason == "DependencyNeverSatisfied" for *_, reason in jobs)
        return not jobs or (stuck and all(reason.startswith("Dependency") for *_, reason in jobs))

    def stop(self):
        """Stop jobs and daemons."""
        if self.daemons[2:]:
            self.output("scancel", "--state=PENDING", "--user=root")
            self.output("scancel", "--signal=KILL", "--user=root")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(20)
            daemon.kill()
            daemon.wait()


class Preparation:
    """The command of a user for one directory, as often as it takes."""

    def __init__(self, slurm, inputs_folder, out):
        self.slurm, self.out = slurm, out
        line = [PROGRAM, "prepare", inputs_folder / "recipe.toml", "--out", out, "--memory", "128MiB"]
        self.line = [*line, "--on", "slurm"]

    def submit(self):
        """Run the command in a directory of its own, because it may write there."""
        current = self.out.with_name(f"{self.out.name}-cwd")
        current.mkdir(exist_ok=True)
        named = {"env": self.slurm.environment, "cwd": current, "stdout": subprocess.PIPE, "text": True}
        done = subprocess.run(self.line, check=True, timeout=START_TIMEOUT, **named)
        print(done.stdout.strip(), file=sys.stderr, flush=True)

    def wait(self):
        """Wait until no job runs or will run; return how many are left in the queue, and remove them."""
        until(self.slurm.stopped, JOBS_TIMEOUT, "end of all jobs")
        left = self.slurm.jobs()
        if left:
            print(self.slurm.output("squeue"), file=sys.stderr, flush=True)
            self.slurm.output("scancel", *{identifier.split("_")[0] for identifier, *_ in left})
            until(lambda: not self.slurm.jobs(), START_TIMEOUT, "end of cancelled jobs")
        return len(left)

    def running(self, phase):
        """Return the process ids of the elements of a phase."""
        words = f"\0{self.out}\0", f"\0{phase}\0", "_prepare_task"
        return [pid for pid, _, _, line in processes() if all(word in line for word in words)]

    def digest(self):
        """Return the digest of the manifest, or nothing."""
        path = self.out / "manifest.json"
        return json.loads(path.read_text())["digest"] if path.exists() else None


def main():
    """Run and report."""
    scratch = tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)
    folder = pathlib.Path(scratch.name)
    inputs(folder)
    line = [PROGRAM, "prepare", folder / "recipe.toml", "--out", folder / "threads", "--json"]
    expected = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)["digest"]
    slurm = Slurm(folder / "slurm")
    try:
        slurm.start()
        plain = Preparation(slurm, folder, folder / "undisturbed")
        plain.submit()
        plain.wait()
        report = {"undisturbed": {"same digest": plain.digest() == expected}}
        killed = Preparation(slurm, folder, folder / "killed")
        killed.submit()
        until(lambda: killed.running("map"), JOBS_TIMEOUT, "a map element")
        slurm.output("scancel", slurm.jobs("--state=RUNNING", "--name=brimful-map")[0][0])
        report["map element cancelled"] = {"jobs left": killed.wait(), "manifest": bool(killed.digest())}
        killed.submit()
        os.kill(until(lambda: killed.running("shard"), JOBS_TIMEOUT, "a shard element")[0], signal.SIGKILL)
        report["shard element killed"] = {"jobs left": killed.wait(), "manifest": bool(killed.digest())}
        killed.submit()
        report["run again"] = {"jobs left": killed.wait(), "same digest": killed.digest() == expected}
        print(json.dumps(report))
    finally:
        slurm.stop()
        scratch.cleanup()
    same = (report["undisturbed"]["same digest"], report["run again"]["same digest"])
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
