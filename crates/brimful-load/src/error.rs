//! What can be wrong with data. Fields, not sentences; the text is made here.

use std::io;
use std::path::{Path, PathBuf};

use brimful_mapping::Truncated;

use crate::location::shown;

/// A dataset cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("failed to read {}", named(path))]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The file is not what it should be.
    #[error("{}: expected {expected}, found {found}", named(path))]
    Malformed {
        path: PathBuf,
        expected: String,
        found: String,
    },
    /// The file is sound, but is of a kind that is not read; `hint` says what to do.
    #[error("{}: {what} is not supported", named(path))]
    Unsupported {
        path: PathBuf,
        what: String,
        hint: String,
    },
    /// A name that is not in the file; with those that are.
    #[error("{}: no field {wanted:?}; available fields are {}", named(path), known.join(", "))]
    NoSuchField {
        path: PathBuf,
        wanted: String,
        known: Vec<String>,
    },
}

/// One sample cannot be read. The loader adds the place of the sample.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("failed to read the sample")]
    Io(#[source] io::Error),
    #[error(transparent)]
    Truncated(Truncated),
    #[error("expected {expected}, found {found}")]
    Malformed { expected: String, found: String },
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        match error.downcast() {
            Ok(truncated) => ReadError::Truncated(truncated),
            Err(error) => ReadError::Io(error),
        }
    }
}

/// One sample cannot be transformed.
#[derive(Debug, thiserror::Error)]
pub enum OpError {
    /// Said when the pipeline is put together.
    #[error("{op} expected {expected}, found {found}")]
    WrongKind {
        op: &'static str,
        expected: String,
        found: String,
    },
    /// Said of one sample.
    #[error("{op} expected {expected}, found {found}")]
    Malformed {
        op: &'static str,
        expected: String,
        found: String,
    },
}

/// A path for a message: a URL without its credentials.
fn named(path: &Path) -> String {
    shown(path).display().to_string()
}
