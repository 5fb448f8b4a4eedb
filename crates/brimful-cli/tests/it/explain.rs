//! `brimful explain` and `brimful runs`: what a user reads.

use crate::context::{Sandbox, told};

#[test]
fn a_log_is_explained() {
    let sandbox = Sandbox::with(
        "train.log",
        "step 7\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
         14.56 GiB of which 1.00 GiB is free. Process 1 has 13.50 GiB memory in use. Of the allocated memory 13.00 GiB \
         is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n",
    );
    insta::assert_snapshot!(sandbox.told(&["explain", "train.log"]), @r"
    exit code: 0
    ----- stdout -----
    GPU 0 ran out of memory: an allocation of 2 GiB failed; this process holds
    13.1 GiB of 14.56 GiB
    cuda_oom_exhausted (figures) · proved

    Evidence
      output        `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate
                    2.00 GiB. GPU 0 has a total capacity of 14.56 GiB of which
                    1.00 GiB is free. Process 1 has 13.50 GiB memory in use. Of the
                    allocated memory 13.00 GiB is allocated by PyTorch, and…`
      output        2 GiB requested, 1 GiB free, 13 GiB allocated by PyTorch,
                    100 MiB reserved but unused, 14.56 GiB total, 473.44 MiB not
                    used by PyTorch in this process

    What to do, cheapest first
      1. Use a smaller micro-batch, and accumulate gradients to keep the effective
         batch size
      2. Enable activation checkpointing, or 16-bit precision if the GPU supports it
      3. Run `brimful predict` to see which GPUs the run fits on
    ----- stderr -----
    ");
}

#[test]
fn standard_input_is_explained() {
    let sandbox = Sandbox::new();
    let output = sandbox
        .command(&["explain", "-"])
        .write_stdin("RuntimeError: DataLoader worker (pid 99) is killed by signal: Killed. \n")
        .output()
        .unwrap();
    insta::assert_snapshot!(told(&output), @r"
    exit code: 0
    ----- stdout -----
    A DataLoader worker was killed by SIGKILL, likely because host memory ran out;
    no kernel counter is available
    dataloader_worker_killed_oom (worker_killed) · likely

    Evidence
      output        `RuntimeError: DataLoader worker (pid 99) is killed by signal:
                    Killed.`

    What to do, cheapest first
      1. Use fewer DataLoader workers: each may hold a copy of the dataset
      2. Request more memory: `--mem` (Slurm), `resources.limits.memory`
         (Kubernetes), `--memory` (Docker)

    What would confirm it
      - `dmesg -T | grep -i -E 'killed process|out of memory'` or `journalctl -k`,
        at the time of the kill
      - `oom_kill` in `memory.events` (cgroup v2) or `memory.oom_control` (cgroup
        v1) of the job, before and after
      - on Slurm, `sacct -j JOB --format=State,ExitCode,MaxRSS`, on Kubernetes,
        `kubectl describe pod`
      - another run with `brimful run`, which counts OOM kills and samples memory
    ----- stderr -----
    ");
}

#[test]
fn a_recorded_run_is_listed_and_explained() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told_without_measurements(&["runs"]), @r"
    exit code: 0
    ----- stdout -----
    no runs recorded in [DIR]/state
    ----- stderr -----
    ");
    sandbox.write("fail.sh", "sleep 0.5; echo \"KeyError: 'x'\" >&2; exit 3");
    sandbox.told(&["run", "-q", "--", "sh", "fail.sh"]);
    insta::assert_snapshot!(sandbox.told_without_measurements(&["runs"]), @r"
    exit code: 0
    ----- stdout -----
      run  outcome  duration  host peak
      [RUN]  exit code 3  [TIME]  [SIZE]  sh fail.sh
    ----- stderr -----
    ");
    insta::assert_snapshot!(sandbox.told_without_measurements(&["explain"]), @r"
    exit code: 0
    ----- stdout -----
    An error that is not about memory: KeyError: 'x'
    not_memory (exception) · likely

    Evidence
      exit status  exit code 3
      output  `KeyError: 'x'`
    ----- stderr -----
    ");
}
