//! `brimful plan`, as far as it goes without torch.

use std::fs;

use assert_cmd::Command;
use brimful_cli::exit::ExitStatus;

use crate::context::program;

fn plan(folder: &tempfile::TempDir, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(program())
        .arg("plan")
        .args(arguments)
        .current_dir(folder.path())
        .env("NO_COLOR", "1")
        .env("BRIMFUL_STATE_DIR", folder.path().join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

const BAD_INPUT: i32 = ExitStatus::BadInput.code() as i32;

#[test]
fn a_folder_without_a_job_is_told_how_to_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let (code, said) = plan(&folder, &[]);
    assert_eq!(code, Some(BAD_INPUT));
    assert!(said.contains("brimful init -- python train.py"), "{said}");
}

#[test]
fn a_mistyped_knob_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("brimful.toml"),
        "[job]\ncommand = [\"python3\", \"train.py\", \"--workers\", \"{wokers}\"]\n[knobs]\nworkers = [2, 0]\n",
    )
    .unwrap();
    let (code, said) = plan(&folder, &[]);
    assert_eq!(code, Some(BAD_INPUT));
    assert!(
        said.contains("wokers") && said.contains("workers"),
        "{said}"
    );
}

#[test]
fn a_script_that_ends_at_once_is_shown_with_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("train.py"),
        "raise SystemExit('no data here')\n",
    )
    .unwrap();
    fs::write(
        folder.path().join("brimful.toml"),
        "[job]\ncommand = [\"python3\", \"train.py\", \"--workers\", \"{workers}\"]\n[knobs]\nworkers = [2, 0]\n",
    )
    .unwrap();
    let (code, said) = plan(&folder, &["--gpu", "none"]);
    assert_eq!(code, Some(BAD_INPUT));
    assert!(said.contains("no data here"), "{said}");
}
