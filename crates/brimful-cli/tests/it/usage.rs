//! Help, mistakes, exit codes, closed pipes.

use std::process::{Command, Stdio};

use brimful_cli::exit::ExitStatus;

use crate::context::{brimful, program, told};

fn check_code(arguments: &[&str], expected: ExitStatus) {
    let output = brimful(arguments);
    assert_eq!(
        output.status.code(),
        Some(i32::from(expected.code())),
        "{arguments:?}"
    );
}

#[test]
fn exit_codes_are_as_documented() {
    check_code(&["--help"], ExitStatus::Success);
    check_code(&["--version"], ExitStatus::Success);
    check_code(&["probe", "--help"], ExitStatus::Success);
    check_code(&["probe", "--as", "colab-t4"], ExitStatus::Success);
    check_code(&["completions", "bash"], ExitStatus::Success);
    check_code(
        &["probe", "--as", "colab-t4", "--fail-on", "fatal"],
        ExitStatus::Success,
    );
    check_code(
        &["probe", "--as", "colab-t4", "--fail-on", "note"],
        ExitStatus::FindingMade,
    );
    check_code(
        &["probe", "--as", "k8s-default", "--fail-on", "fatal"],
        ExitStatus::FindingMade,
    );
    check_code(&["probe", "--memory", "16"], ExitStatus::BadInput);
    check_code(&["probe", "--memory", "-1GiB"], ExitStatus::BadInput);
    check_code(&["probe", "--python", "/etc/passwd"], ExitStatus::BadInput);
    check_code(&["probe", "--python", "python3"], ExitStatus::Success);
    check_code(&[], ExitStatus::BadInput);
    check_code(&["prob"], ExitStatus::BadInput);
    check_code(&["probe", "--nonsense"], ExitStatus::BadInput);
    check_code(&["probe", "--memory", "lots"], ExitStatus::BadInput);
    check_code(&["probe", "--as", "nowhere"], ExitStatus::BadInput);
    check_code(&["probe", "--gpu", "abacus"], ExitStatus::BadInput);
    check_code(
        &["probe", "--python", "/nonexistent/python"],
        ExitStatus::BadInput,
    );
}

#[test]
fn mistakes_are_told_with_the_way_out() {
    insta::assert_snapshot!(told(&brimful(&["probe", "--as", "colab-t5"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: unknown machine `colab-t5` (did you mean `colab-t4`?)

    hint: run `brimful probe --list` to list all machines
    ");
    insta::assert_snapshot!(told(&brimful(&["probe", "--gpu", "rtx 4091"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: unknown GPU `rtx 4091` (did you mean `rtx-4090`?)

    hint: run `brimful probe --list` to list all GPU models
    ");
    insta::assert_snapshot!(told(&brimful(&["probe", "--memory", "12 parsecs"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: invalid value '12 parsecs' for '--memory <SIZE>': `12 parsecs` is not a size; write for example `16GiB`, `512MiB` or `8GB`

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(told(&brimful(&["probe", "--python", "/nonexistent/python"])), @r"
    exit code: 96
    ----- stdout -----
    ----- stderr -----
    error: no Python executable at `/nonexistent/python`

    hint: pass the path of the executable, for example `.venv/bin/python`, or a name on PATH
    ");
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_success() {
    // `head -c 0` closes the pipe at once.
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(r#"{ "$0" probe --list; echo "code $?" >&2; } | head -c 0"#)
        .arg(program())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "code 0\n");
}

#[test]
fn a_full_disk_is_the_machines_turn() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = Command::new(program())
        .args(["probe", "--as", "colab-t4"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(i32::from(ExitStatus::MachineRefuses.code()))
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("failed to write to standard output"),
        "{said}"
    );
    assert!(said.contains("hint: "), "{said}");
}

#[test]
fn completions_know_every_option() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = brimful(&["completions", shell]);
        let script = String::from_utf8_lossy(&output.stdout);
        for word in ["probe", "json", "gpu", "memory"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    for arguments in [
        &["--help"][..],
        &["-h"],
        &["probe", "--help"],
        &["probe", "-h"],
    ] {
        let output = brimful(arguments);
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line}");
        }
    }
}
