//! What is wrong with a file, before its name is added.

use std::io;
use std::path::Path;

use brimful::units::Bytes;

use crate::error::SourceError;
use crate::reading::{Choice, choose_among};
use crate::remote::is_remote;

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

/// How to read all of these files.
pub(crate) fn choice_of<'a>(
    paths: impl IntoIterator<Item = &'a Path> + Clone,
    headroom: Option<Bytes>,
) -> Result<Choice, SourceError> {
    let mut bytes = 0_u64;
    for path in paths.clone() {
        bytes = bytes.saturating_add(file_bytes(path)?);
    }
    Ok(choose_among(paths, Bytes(bytes), headroom))
}

/// Bytes of a file that the page cache may keep: none of an object in a store, which tells its size when it is opened.
fn file_bytes(path: &Path) -> Result<u64, SourceError> {
    if is_remote(path) {
        return Ok(0);
    }
    let metadata = std::fs::metadata(path).map_err(|cause| Problem::from(cause).of(path))?;
    if metadata.is_file() {
        Ok(metadata.len())
    } else {
        Err(Problem::malformed("a file", "something else").of(path))
    }
}

/// Where a footer of `len` bytes begins that ends at `end`. Longer ones than `longest` are not read.
pub(crate) fn footer_start(end: u64, len: u64, longest: u64) -> Result<u64, Problem> {
    let start = end.checked_sub(len).filter(|_| len <= longest);
    start.ok_or_else(|| {
        let most = end.min(longest);
        Problem::malformed(
            format!("a footer of at most {most} bytes"),
            format!("{len}"),
        )
    })
}

/// The name of a file without its folders, for messages.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}
