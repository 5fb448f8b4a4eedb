"""Submit what `brimful plan --format slurm` prints to a real Slurm on this machine.

    brimful plan --gpu a100-40gb --memory 64GiB --format slurm > train.sbatch
    python benches/requests/slurm.py train.sbatch

Needs root and Debian's packages slurm-wlm and munge, as benches/prepare/slurm.py does. The node is made up:
64 CPUs, 256 GB and 8 GPUs, which are files. The script must pass `sbatch --test-only`; the same script with
more memory than the node has must not. Then it runs, with its command replaced by one that prints what Slurm
has given to the job and to the step of `srun`.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "prepare"))

from slurm import CONFIGURATION, Slurm

NODE = CONFIGURATION.replace("CPUs=2 RealMemory=2000", "CPUs=64 RealMemory=256000 Gres=gpu:8")
MADE_UP = "GresTypes=gpu\nSlurmdParameters=config_overrides\n"
GIVEN = ("SLURM_MEM_PER_NODE", "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_JOB_NAME")


def main():
    """Check the script and print what the job has got."""
    script = pathlib.Path(sys.argv[1]).read_text()
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as scratch:
        folder = pathlib.Path(scratch)
        slurm = Slurm(folder / "slurm", NODE + MADE_UP)
        for number in range(8):
            (folder / f"gpu{number}").touch()
        (folder / "slurm/gres.conf").write_text(f"Name=gpu Count=8 File={folder}/gpu[0-7]\n")
        try:
            slurm.start()
            return check(slurm, folder, script)
        finally:
            slurm.stop()


def check(slurm, folder, script):
    """Return 0 if Slurm takes the script, and refuses one that asks for too much."""
    too_much = re.sub(r"--mem=\d+M", "--mem=9999999M", script)
    for text, accepted in ((script, True), (too_much, False)):
        done = sbatch(slurm, folder, text, "--test-only")
        print(done.stderr.strip())
        if (done.returncode == 0) != accepted:
            print(f"expected it to be {'accepted' if accepted else 'refused'}")
            return 1
    # The step of `srun` does not inherit the CPUs of the job.
    shown = "; ".join(f"echo {name}=${name}" for name in GIVEN)
    step = r"srun \1 printenv SLURM_CPUS_PER_TASK | sed 's/^/of the step: SLURM_CPUS_PER_TASK=/'"
    run = re.sub(r"^srun (--cpus-per-task=\d+) .*$", f"{shown}\n{step}", script, flags=re.MULTILINE)
    done = sbatch(slurm, folder, run, "--wait", f"--output={folder}/log")
    print((folder / "log").read_text().strip())
    return done.returncode


def sbatch(slurm, folder, text, *options):
    """Submit a script."""
    path = folder / "script"
    path.write_text(text)
    named = {"env": slurm.environment, "cwd": folder, "capture_output": True, "text": True, "timeout": 120}
    return subprocess.run([shutil.which("sbatch") or "sbatch", *options, path], check=False, **named)


if __name__ == "__main__":
    sys.exit(main())
