//! `brimful init` with scripts that need nothing but Python.

use std::path::Path;
use std::process::{Command, Output};

use crate::context::program;

const SCRIPT: &str = r#"
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32, help="samples at a time")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--workers", type=int, default=4)
parser.add_argument("--pin-memory", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--checkpointing", action="store_true")
parser.add_argument("--resolution", type=int, default=64)
parser.add_argument("--output", default="outputs")
parser.add_argument("--max-steps", type=int)
parser.add_argument("--resume")
parser.parse_args()
open("reached", "w").close()
"#;

/// A folder with a script in it.
fn folder(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.py"), script).unwrap();
    folder
}

fn init(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(program())
        .arg("init")
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_job_file_is_written_and_nothing_of_the_training_is_run() {
    let folder = folder(SCRIPT);
    let command = [
        "--",
        "python3",
        "train.py",
        "--batch-size",
        "64",
        "--workers=2",
    ];
    let done = init(folder.path(), &command);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    insta::assert_snapshot!(said(&done), @r"
    note: wrote brimful.toml: the knobs are micro_batch, workers, pin_memory, activation_checkpointing
    hint: check the file, then run `brimful plan` to choose settings
    ");
    let text = std::fs::read_to_string(folder.path().join("brimful.toml")).unwrap();
    let job = brimful::job::read(&text)
        .unwrap()
        .job(Some("debug"), &[])
        .unwrap();
    assert_eq!(job.effective_batch, Some(64));
    assert_eq!(
        job.render(&brimful::job::Settings::default(), Some("last.pt"))
            .command,
        [
            "python3",
            "train.py",
            "--workers=2",
            "--pin-memory",
            "--max-steps",
            "20",
            "--resume",
            "last.pt"
        ]
    );
    assert!(
        text.contains("# resolution = [64, 48, 32]  # --resolution\n"),
        "{text}"
    );
    assert!(!folder.path().join("reached").exists());

    // What is there is kept, unless asked.
    let again = init(folder.path(), &command);
    assert_eq!(again.status.code(), Some(96));
    insta::assert_snapshot!(said(&again), @r"
    error: `brimful.toml` already exists

    hint: pass `--force` to overwrite it, or `--output FILE` to write another file
    ");
    let forced = init(folder.path(), &["--force", "--", "python3", "train.py"]);
    assert_eq!(forced.status.code(), Some(0), "{}", said(&forced));
}

#[test]
fn a_file_can_go_to_standard_output() {
    let folder = folder(SCRIPT);
    let done = init(
        folder.path(),
        &["--output", "-", "--", "python3", "train.py"],
    );
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    brimful::job::read(&String::from_utf8_lossy(&done.stdout)).unwrap();
    assert!(!folder.path().join("brimful.toml").exists());
}

#[test]
fn a_script_without_a_parser_gets_a_minimal_file() {
    let folder = folder("import sys\nprint(sys.argv)\n");
    let done = init(folder.path(), &["--", "python3", "train.py", "8"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    insta::assert_snapshot!(said(&done), @r"
    note: the script did not parse arguments: it exited with exit status: 0
    hint: add placeholders such as {workers} to the command in the job file
    note: wrote brimful.toml: no knobs were found
    hint: check the file, then run `brimful plan` to choose settings
    note: found no setting for the batch size, gradient accumulation, DataLoader workers and activation checkpointing
    hint: if the script has one under another name, add a placeholder for it to the job file, for example {workers} (see docs/reference/job-file.md)
    ");
}

#[test]
fn a_script_that_dies_or_hangs_is_told() {
    let folder = folder(
        "import time, sys\nprint('some words')\nif len(sys.argv) > 1: raise SystemExit(3)\ntime.sleep(60)\n",
    );
    let done = init(folder.path(), &["--", "python3", "train.py", "x"]);
    assert_eq!(done.status.code(), Some(96));
    insta::assert_snapshot!(said(&done), @r"
    last lines of the script's output:
      | some words

    error: the script ended with exit code 3 before it parsed its arguments

    hint: see the end of its output for the reason
    ");
    let done = init(
        folder.path(),
        &["--time-limit", "1", "--", "python3", "-u", "train.py"],
    );
    assert_eq!(done.status.code(), Some(96));
    assert!(said(&done).contains("within 1 seconds"), "{}", said(&done));
    let done = init(folder.path(), &["--", "no-such-program-here"]);
    assert_eq!(done.status.code(), Some(96));
    assert!(
        said(&done).contains("`-- python train.py`"),
        "{}",
        said(&done)
    );
    assert!(!folder.path().join("brimful.toml").exists());
}

#[test]
fn a_script_that_dies_beside_its_config_file_gets_a_job_file() {
    let folder = folder("raise SystemExit(3)\n");
    std::fs::write(folder.path().join("c.json"), "{\"num_workers\": 2}").unwrap();
    let done = init(folder.path(), &["--", "python3", "train.py", "c.json"]);
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    assert!(
        said(&done).contains("the script ended with exit code 3"),
        "{}",
        said(&done)
    );
    let text = std::fs::read_to_string(folder.path().join("brimful.toml")).unwrap();
    assert!(text.contains("num_workers = \"{workers}\""), "{text}");
}

#[test]
fn a_job_in_a_pyproject_is_named() {
    let folder = folder(SCRIPT);
    std::fs::write(
        folder.path().join("pyproject.toml"),
        "[tool.brimful.job]\ncommand = [\"python3\", \"train.py\"]\n",
    )
    .unwrap();
    let done = init(folder.path(), &["--", "python3", "train.py"]);
    assert!(
        said(&done).contains("pyproject.toml also contains a job"),
        "{}",
        said(&done)
    );
}

#[test]
fn config_files_are_read_and_missing_settings_named() {
    let folder = folder(
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--config')\nparser.parse_args()\n",
    );
    std::fs::write(
        folder.path().join("c.yaml"),
        "train:\n  batch_size: 8 # mine\n  grad_accum: 2\n",
    )
    .unwrap();
    std::fs::write(folder.path().join("broken.json"), "{\"a\": ").unwrap();
    let done = init(
        folder.path(),
        &[
            "--",
            "python3",
            "train.py",
            "--config=c.yaml",
            "--other",
            "broken.json",
        ],
    );
    assert_eq!(done.status.code(), Some(0), "{}", said(&done));
    let said = said(&done);
    assert!(
        said.contains("invalid config file `broken.json`: it is not valid YAML or JSON"),
        "{said}"
    );
    assert!(
        said.contains(
            "note: found no setting for DataLoader workers and activation checkpointing\n"
        ),
        "{said}"
    );
    let text = std::fs::read_to_string(folder.path().join("brimful.toml")).unwrap();
    assert!(
        text.contains(
            "[config.\"c.yaml\"]\n\"train.batch_size\" = \"{micro_batch}\"\n\"train.grad_accum\" = \"{accumulation}\"\n"
        ),
        "{text}"
    );
}
