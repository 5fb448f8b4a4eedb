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
    Card 0 is full: 2 GiB more did not fit into 14.56 GiB, of which this process
    holds 13.1 GiB
    cuda_oom_exhausted (figures) · proved

    What says so
      it printed    `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate
                    2.00 GiB. GPU 0 has a total capacity of 14.56 GiB of which
                    1.00 GiB is free. Process 1 has 13.50 GiB memory in use. Of the
                    allocated memory 13.00 GiB is allocated by PyTorch, and…`
      it printed    2 GiB asked for, 1 GiB free, 13 GiB allocated by PyTorch,
                    100 MiB reserved and unused, 14.56 GiB on the card, 473.44 MiB
                    held by neither

    What to do, cheapest first
      1. Use a smaller micro-batch, and accumulate to keep the effective batch
      2. Turn on activation checkpointing, or a precision of 16 bits where the card
         computes in it
      3. Ask `brimful predict` what fits on which card before the next run
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
    nothing here counted it
    dataloader_worker_killed_oom (worker_killed) · likely

    What says so
      it printed    `RuntimeError: DataLoader worker (pid 99) is killed by signal:
                    Killed.`

    What to do, cheapest first
      1. Use fewer DataLoader workers: each may hold a copy of the dataset
      2. Ask for more memory: `--mem` (Slurm), `resources.limits.memory`
         (Kubernetes), `--memory` (Docker)

    What would settle it
      - `dmesg -T | grep -i -E 'killed process|out of memory'` or `journalctl -k`,
        at the time of its end
      - `oom_kill` in the group's `memory.events` (cgroup v2) or
        `memory.oom_control` (v1), before and after
      - on Slurm `sacct -j JOB --format=State,ExitCode,MaxRSS`, on Kubernetes
        `kubectl describe pod`
      - running it again under `brimful run`, which counts kills and samples memory
    ----- stderr -----
    ");
}

#[test]
fn a_recorded_run_is_listed_and_explained() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told_without_measurements(&["runs"]), @r"
    exit code: 0
    ----- stdout -----
    no run has been recorded in [DIR]/state
    ----- stderr -----
    ");
    sandbox.write("fail.sh", "sleep 0.5; echo \"KeyError: 'x'\" >&2; exit 3");
    sandbox.told(&["run", "-q", "--", "sh", "fail.sh"]);
    insta::assert_snapshot!(sandbox.told_without_measurements(&["runs"]), @r"
    exit code: 0
    ----- stdout -----
      run  ended  ran  host peak
      [RUN]  exit code 3  [TIME]  [SIZE]  sh fail.sh
    ----- stderr -----
    ");
    insta::assert_snapshot!(sandbox.told_without_measurements(&["explain"]), @r"
    exit code: 0
    ----- stdout -----
    An error that is not about memory: KeyError: 'x'
    not_memory (exception) · likely

    What says so
      its end  exit code 3
      it printed  `KeyError: 'x'`
    ----- stderr -----
    ");
}
