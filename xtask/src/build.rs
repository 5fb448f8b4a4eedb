//! The one build of everything that is tested.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::shell::{cargo, root, run};

/// Builds the tests, and the programs and libraries that they start and load. The wheel of the Python tests and the stub
/// are made of them too.
///
/// All in one command: cargo unites the features of what it builds together, and builds a crate again for other features.
pub(crate) fn build_everything() -> Result<()> {
    run(&mut cargo(&[
        "build",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--examples",
        "--locked",
        "--quiet",
    ]))
}

/// A program or library of that build.
pub(crate) fn built(name: &str) -> PathBuf {
    // xtask itself is among them.
    let program = std::env::current_exe().unwrap_or_default();
    let directory = program.parent().map(Path::to_owned);
    directory
        .unwrap_or_else(|| root().join("target/debug"))
        .join(name)
}
