//! What to compare.

use std::path::PathBuf;

/// What to compare.
#[derive(Debug)]
pub(crate) struct Options {
    pub truth: PathBuf,
    pub json: bool,
    pub sample: Option<usize>,
    pub python: PathBuf,
    pub phantom: Option<PathBuf>,
}

impl Options {
    /// All rows.
    pub(crate) fn of_all(truth: PathBuf, python: PathBuf, phantom: Option<PathBuf>) -> Options {
        Options {
            truth,
            json: false,
            sample: None,
            python,
            phantom,
        }
    }
}
