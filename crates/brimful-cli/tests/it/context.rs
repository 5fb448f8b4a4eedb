//! Starting the program.

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;

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

/// Exit code, stdout and stderr as one text for a snapshot.
pub(crate) fn told(output: &Output) -> String {
    format!(
        "exit code: {}\n----- stdout -----\n{}----- stderr -----\n{}",
        output
            .status
            .code()
            .map_or("none".into(), |code| code.to_string()),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The schema as it is checked in.
pub(crate) fn checked_in_schema() -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/probe.schema.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}
