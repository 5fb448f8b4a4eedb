//! A directory for the files of one process. `cargo xtask fuzz` puts it into memory and removes it.

use std::path::Path;
use std::sync::LazyLock;

use tempfile::TempDir;

static DIRECTORY: LazyLock<TempDir> =
    LazyLock::new(|| TempDir::new().expect("a temporary directory"));

pub fn path() -> &'static Path {
    DIRECTORY.path()
}
