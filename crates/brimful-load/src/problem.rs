//! What is wrong with a file, before its name is added.

use std::io;
use std::path::Path;

use crate::error::SourceError;

/// A [`SourceError`] without the path, which the parsers do not know.
#[derive(Debug)]
pub(crate) enum Problem {
    Unreadable(io::Error),
    Malformed { expected: String, found: String },
    Unsupported { what: String, hint: String },
}

impl Problem {
    pub(crate) fn malformed(expected: impl Into<String>, found: impl Into<String>) -> Problem {
        Problem::Malformed {
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(crate) fn unsupported(what: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem::Unsupported {
            what: what.into(),
            hint: hint.into(),
        }
    }

    pub(crate) fn of(self, path: &Path) -> SourceError {
        let path = path.to_owned();
        match self {
            Problem::Unreadable(cause) => SourceError::Unreadable { path, cause },
            Problem::Malformed { expected, found } => SourceError::Malformed {
                path,
                expected,
                found,
            },
            Problem::Unsupported { what, hint } => SourceError::Unsupported { path, what, hint },
        }
    }
}

impl From<io::Error> for Problem {
    fn from(cause: io::Error) -> Problem {
        Problem::Unreadable(cause)
    }
}
