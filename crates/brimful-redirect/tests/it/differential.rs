//! Random file operations give the same results as on a plain copy of the tree.

use std::process::Command;

use crate::world::{library, script};

/// Runs `differential.py` for some seeds. `BRIMFUL_REDIRECT_SEEDS` asks for more of them.
fn compare(first: u32) {
    let seeds = std::env::var("BRIMFUL_REDIRECT_SEEDS").unwrap_or_else(|_| "10".to_owned());
    let directory = tempfile::TempDir::new().unwrap();
    let output = Command::new("python3")
        .arg("-B")
        .arg(script("differential.py"))
        .arg(library())
        .arg(directory.path())
        .args([&first.to_string(), &seeds, "30"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn random_operations_give_the_same_results() {
    compare(1);
}

#[test]
fn other_random_operations_give_the_same_results() {
    compare(100_000);
}
