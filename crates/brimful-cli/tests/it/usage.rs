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
        ExitStatus::ProblemFound,
    );
    check_code(
        &["probe", "--as", "k8s-default", "--fail-on", "fatal"],
        ExitStatus::ProblemFound,
    );
    // A worse problem than the named one counts too.
    check_code(
        &["probe", "--as", "k8s-default", "--fail-on", "note"],
        ExitStatus::ProblemFound,
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
fn unknown_names_are_reported_with_a_suggestion() {
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
fn a_full_disk_is_an_environment_error() {
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
    insta::assert_snapshot!(told(&output), @r"
    exit code: 97
    ----- stdout -----
    ----- stderr -----
    error: failed to write to standard output
      caused by: No space left on device (os error 28)

    hint: check whether the disk is full
    ");
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
fn help_names_every_command_and_exit_code() {
    insta::assert_snapshot!(told(&brimful(&["-h"])), @r"
    exit code: 0
    ----- stdout -----
    Predicts, monitors and explains the memory use of PyTorch training runs

    Usage: brimful [OPTIONS] <COMMAND>

    Commands:
      probe        Show this machine's effective memory limits and likely problems
      predict      Predict how much memory a training command needs, without a GPU
      compare      Compare GPUs for a training command: memory, time and cost
      plan         Find the fastest settings that fit in memory
      replay       Replay recorded allocations on another GPU or with other
                   allocator settings
      run          Run a training command, monitor its memory and explain failures
      verify       Compare a prediction with what this machine's GPU measures
      explain      Explain why a run died, from a run record, log or snapshot
      report       Write a report with charts, as one HTML file
      runs         List recorded runs
      top          Show a running job live: memory, processes, alarms and progress
      prepare      Write raw data once as shuffled shards, within a memory budget
      init         Create a job file (brimful.toml) for a training command
      completions  Generate a shell completion script

    Options:
          --color <WHEN>  Control colors in output [default: auto] [possible values:
                          auto, always, never]
      -h, --help          Print help (see more with '--help')
      -V, --version       Print version

    Exit codes: 0 success, 70 internal error, 96 invalid input, 97 environment
    error, 98 problem found (--fail-on) or GPU in use, 99 nothing fits.
    ----- stderr -----
    ");
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    let mut all = vec![vec!["--help".to_owned()], vec!["-h".to_owned()]];
    for command in brimful_cli::args::definition().get_subcommands() {
        for option in ["--help", "-h"] {
            all.push(vec![command.get_name().to_owned(), option.to_owned()]);
        }
    }
    for arguments in all {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = brimful(&arguments);
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line}");
        }
    }
}
