//! `brimful predict` without torch: what it prints before and instead of a rehearsal.
//! With torch it is tested in `python/torch_tests`.

use crate::context::Sandbox;

#[test]
fn invalid_requests_are_reported_before_anything_starts() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told(&["predict", "--gpu", "rtx-4091", "--", "touch", "started"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: unknown GPU `rtx-4091` (did you mean `rtx-4090`?)

    hint: run `brimful probe --list` to list all GPU models
    ");
    insta::assert_snapshot!(sandbox.told(&["predict", "--alloc-conf", "max_split:1", "--", "touch", "started"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: unknown allocator setting `max_split`, which PyTorch rejects
    ");
    assert!(!sandbox.path().join("started").exists());
}

#[test]
fn a_command_that_cannot_start() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told(&["predict", "--gpu", "t4", "--", "no-such-program-here"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: failed to start `no-such-program-here`
      caused by: No such file or directory (os error 2)

    hint: write the command after `--` as you would type it, for example `-- python train.py`
    ");
}

#[test]
fn a_command_without_torch_differs_from_one_that_dies() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(sandbox.told(&["predict", "--gpu", "t4", "--", "true"]), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: the script exited before brimful saw it import torch

    hint: check that the script imports torch, and that Python is not started with -I, -E or -S, which ignore PYTHONPATH
    ");
    let dies = [
        "predict",
        "--gpu",
        "t4",
        "--",
        "sh",
        "-c",
        "echo some words; exit 3",
    ];
    insta::assert_snapshot!(sandbox.told(&dies), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    last lines of the script's output:
      | some words

    error: the script ended with exit code 3 before its first optimizer step

    hint: see the end of its output for the reason; a rehearsal needs the script to reach its first steps
    ");
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_processes() {
    let sandbox = Sandbox::new();
    let start = std::time::Instant::now();
    let waits = [
        "predict",
        "--gpu",
        "t4",
        "--time-limit",
        "1",
        "--",
        "sh",
        "-c",
        "sleep 60 & wait",
    ];
    insta::assert_snapshot!(sandbox.told(&waits), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: the rehearsal timed out after 1 seconds with 0 of 3 steps completed

    hint: raise `--time-limit`, or shorten what comes before the first step
    ");
    assert!(start.elapsed().as_secs() < 20);
}
