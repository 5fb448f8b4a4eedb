//! `brimful predict` where no torch is: what it says before and instead of a rehearsal.
//! With torch it is tested in `python/torch_tests`.

use crate::context::brimful;

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let done = brimful(arguments);
    (
        done.status.code(),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    )
}

#[test]
fn a_mistyped_card_is_told_before_anything_starts() {
    let (code, told) = refused(&["predict", "--gpu", "rtx-4091", "--", "false"]);
    assert_eq!(code, Some(96), "{told}");
    assert!(told.contains("did you mean `rtx-4090`"), "{told}");
}

#[test]
fn a_setting_that_torch_refuses_is_refused() {
    let (code, told) = refused(&["predict", "--alloc-conf", "max_split:1", "--", "false"]);
    assert_eq!(code, Some(96), "{told}");
    assert!(told.contains("max_split"), "{told}");
}

#[test]
fn a_command_that_cannot_start_says_how_to_write_it() {
    let (code, told) = refused(&["predict", "--gpu", "t4", "--", "no-such-program-here"]);
    assert_eq!(code, Some(96), "{told}");
    assert!(told.contains("could not be started"), "{told}");
    assert!(told.contains("`-- python train.py`"), "{told}");
}

#[test]
fn a_command_without_torch_is_told_apart_from_one_that_dies() {
    let (code, told) = refused(&["predict", "--gpu", "t4", "--", "true"]);
    assert_eq!(code, Some(96), "{told}");
    assert!(
        told.contains("before brimful saw it import torch"),
        "{told}"
    );
    let (code, told) = refused(&[
        "predict",
        "--gpu",
        "t4",
        "--",
        "sh",
        "-c",
        "echo some words; exit 3",
    ]);
    assert_eq!(code, Some(96), "{told}");
    assert!(told.contains("exit status: 3"), "{told}");
    assert!(told.contains("| some words"), "{told}");
}

#[test]
fn a_command_that_takes_too_long_is_ended_with_all_it_started() {
    let start = std::time::Instant::now();
    let (code, told) = refused(&[
        "predict",
        "--gpu",
        "t4",
        "--time-limit",
        "1",
        "--",
        "sh",
        "-c",
        "sleep 60 & wait",
    ]);
    assert_eq!(code, Some(96), "{told}");
    assert!(told.contains("timed out after 1 seconds"), "{told}");
    assert!(start.elapsed().as_secs() < 20);
}
