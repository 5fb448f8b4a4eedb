//! What can be wrong with a shared copy.

use std::io;

/// Bytes that no writer of ours has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at byte {at} of a shared copy, found something else")]
pub struct Damaged {
    pub expected: &'static str,
    pub at: u64,
}

/// A shared copy cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("expected to make a file {place}, found that it cannot be made: {cause}")]
    NotCreated { place: String, cause: io::Error },
    #[error("expected to write a shared copy, found that it cannot be written: {cause}")]
    NotWritten { cause: io::Error },
    #[error(
        "expected to map {len} bytes of a shared copy, found that they cannot be mapped: {cause}"
    )]
    NotMapped { len: u64, cause: io::Error },
    #[error("expected process {pid} to hold the shared copy, found no such process")]
    OwnerGone { pid: u32 },
    #[error("expected to open the shared copy that process {pid} holds, found: {cause}")]
    NotOpened { pid: u32, cause: io::Error },
    #[error(
        "expected process {pid} to hold the shared copy as its descriptor {fd}, found another file there"
    )]
    NotTheSame { pid: u32, fd: i32 },
    #[error(
        "expected descriptor {fd} to be the shared copy, found that this process has closed it or used it anew"
    )]
    DescriptorLost { fd: i32 },
    #[error(
        "the file of a shared copy was truncated while it was in use: expected {len} bytes, found fewer"
    )]
    Truncated { len: u64 },
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

impl ShareError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            ShareError::NotCreated { .. } => {
                "pass where=\"disk\" or a folder that can be written, or leave `where` out for memory"
            }
            ShareError::NotWritten { .. } => {
                "make room, or pass where=\"disk\" or a folder on a larger disk"
            }
            ShareError::NotMapped { .. } => {
                "look at the limit of address space (ulimit -v) and of maps (vm.max_map_count)"
            }
            ShareError::OwnerGone { .. } | ShareError::NotTheSame { .. } => {
                "keep the shared object in the process that pickles it until every worker has started; \
                 it cannot be stored for a later run: share again there"
            }
            ShareError::NotOpened { .. } => {
                "both processes must belong to the same user and see each other in /proc"
            }
            ShareError::DescriptorLost { .. } => {
                "do not close descriptors that you have not opened, or share after they were closed"
            }
            ShareError::Truncated { .. } => {
                "the file has no name, so something has written to it through /proc, or the disk has failed: share the \
                 data again, in memory or on another disk"
            }
            ShareError::Damaged(_) => "share the data again; if it comes back, please report it",
        }
    }
}
