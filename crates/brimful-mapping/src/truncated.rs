//! A file that lost bytes while it was in use.

use std::io;
use std::path::PathBuf;

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
        let (path, expected) = (self.path.display(), self.expected);
        match self.found {
            Some(found) if found < expected => format!(
                "{path} was truncated while it was in use: it had {expected} bytes and now has {found}"
            ),
            Some(_) => format!(
                "{path} could not be read through its memory map, although it has {expected} bytes: it was truncated \
                 while it was in use and has grown again, or the disk reported an error"
            ),
            None => format!(
                "{path} was truncated while it was in use: it had {expected} bytes and now has fewer"
            ),
        }
    }
}

impl From<Truncated> for io::Error {
    fn from(truncated: Truncated) -> io::Error {
        io::Error::new(io::ErrorKind::UnexpectedEof, truncated)
    }
}
