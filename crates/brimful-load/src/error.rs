//! What can be wrong with data. Fields, not sentences; the text is made here.

use std::io;
use std::path::{Path, PathBuf};

use crate::remote::shown;

/// A dataset cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{} cannot be read", named(path))]
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
    #[error("{}: {what} is not read", named(path))]
    Unsupported {
        path: PathBuf,
        what: String,
        hint: String,
    },
    /// A name that is not in the file; with those that are.
    #[error("{}: there is no {wanted:?}; there are {}", named(path), known.join(", "))]
    NoSuchField {
        path: PathBuf,
        wanted: String,
        known: Vec<String>,
    },
}

/// One sample cannot be read. The loader adds the place of the sample.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("it cannot be read")]
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

/// A file has lost bytes since it was opened. An [`io::Error`] can hold one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Truncated {
    pub path: PathBuf,
    /// Bytes of the file when it was opened.
    pub expected: u64,
    /// Bytes that it has now; nothing where that is not known.
    pub found: Option<u64>,
}

impl Truncated {
    /// What to do next.
    pub const HINT: &str = "restore the file and run again; to replace a dataset while it is in use, write the new \
                            version to another file and rename that, instead of writing over the old one";

    fn text(&self) -> String {
        let (path, expected) = (named(&self.path), self.expected);
        match self.found {
            Some(found) if found < expected => format!(
                "{path} was truncated while it was in use: expected {expected} bytes, found {found}"
            ),
            Some(_) => format!(
                "{path} could not be read through its memory map, although it has {expected} bytes: it was truncated \
                 while it was in use and has grown again, or the disk reported an error"
            ),
            None => format!(
                "{path} was truncated while it was in use: expected {expected} bytes, found fewer"
            ),
        }
    }
}

impl From<Truncated> for io::Error {
    fn from(truncated: Truncated) -> io::Error {
        io::Error::new(io::ErrorKind::UnexpectedEof, truncated)
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
