//! Starting the program.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output};

use assert_cmd::Command;
use regex::Regex;
use tempfile::TempDir;

/// The program that was built with this test.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_brimful"))
}

/// A copy of the program that other users may start: the build directory may be closed to them.
pub(crate) fn program_for_all_users(directory: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let copy = directory.join("brimful");
    std::fs::copy(program(), &copy).unwrap();
    for path in [directory, &copy] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    copy
}

/// The program of `brimful-testkit` that fills memory; it lies beside ours.
pub(crate) fn memory_hog() -> PathBuf {
    let path = program().with_file_name("memory-hog");
    assert!(
        path.exists(),
        "expected {}, found nothing; build it with `cargo build -p brimful-testkit`",
        path.display()
    );
    path
}

/// Runs `brimful` with arguments, in an environment without color.
pub(crate) fn brimful(arguments: &[&str]) -> Output {
    Command::new(program())
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

/// A directory for one test, in which the program is started. Its run records are below it too.
pub(crate) struct Sandbox(TempDir);

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        Sandbox(tempfile::tempdir().unwrap())
    }

    /// A sandbox with one file in it.
    pub(crate) fn with(name: &str, content: impl AsRef<[u8]>) -> Sandbox {
        let sandbox = Sandbox::new();
        sandbox.write(name, content);
        sandbox
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), content).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(arguments)
            .current_dir(self.path())
            .env("NO_COLOR", "1")
            .env("BRIMFUL_STATE_DIR", self.path().join("state"));
        command
    }

    /// Runs `brimful` here; exit code, stdout and stderr as one text for a snapshot.
    pub(crate) fn told(&self, arguments: &[&str]) -> String {
        let directory = regex::escape(self.path().to_str().unwrap());
        let text = told(&self.command(arguments).output().unwrap());
        filtered(&text, &[(directory.as_str(), "[DIR]"), (RUN_ID, "[RUN]")])
    }

    /// The same without what differs from run to run.
    pub(crate) fn told_without_measurements(&self, arguments: &[&str]) -> String {
        filtered(
            &self.told(arguments),
            &[
                (r"\d+(\.\d+)? (ms|s)\b", "[TIME]"),
                (r"\d+(\.\d+)? [KMGT]iB\b", "[SIZE]"),
                // A short run may end before its memory is measured.
                (r"(brimful: the \w+ finished).*", "$1"),
                // Columns are as wide as what is in them.
                (r"(\S)  +(\S)", "$1  $2"),
            ],
        )
    }
}

const RUN_ID: &str = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[0-9a-f]{4}";

fn filtered(text: &str, filters: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (pattern, name) in filters {
        let pattern = Regex::new(pattern).unwrap();
        text = pattern.replace_all(&text, *name).into_owned();
    }
    text
}

/// How a program ended, as a shell has it in `$?`.
pub(crate) fn shell_status(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal();
    status.code().or(signal.map(|signal| 128 + signal)).unwrap()
}

/// Exit code, stdout and stderr as one text for a snapshot.
pub(crate) fn told(output: &Output) -> String {
    format!(
        "exit code: {}\n----- stdout -----\n{}----- stderr -----\n{}",
        shell_status(output.status),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The schema as it is checked in.
pub(crate) fn checked_in_schema() -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/probe.schema.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
