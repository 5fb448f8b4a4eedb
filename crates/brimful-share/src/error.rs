//! What can be wrong with a shared copy.

use std::io;

/// Bytes that no writer of ours has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("corrupt shared copy: expected {expected} at byte {at}")]
pub struct Damaged {
    pub expected: &'static str,
    pub at: u64,
}

/// A shared copy cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    #[error("failed to create a file {place}: {cause}")]
    NotCreated { place: String, cause: io::Error },
    #[error("failed to write the shared copy: {cause}")]
    NotWritten { cause: io::Error },
    #[error("failed to map {len} bytes of a shared copy: {cause}")]
    NotMapped { len: u64, cause: io::Error },
    #[error("the process that holds the shared copy, {pid}, no longer exists")]
    OwnerGone { pid: u32 },
    #[error("failed to open the shared copy of process {pid}: {cause}")]
    NotOpened { pid: u32, cause: io::Error },
    #[error("descriptor {fd} of process {pid} is no longer the shared copy")]
    NotTheSame { pid: u32, fd: i32 },
    #[error("descriptor {fd} is no longer the shared copy: this process closed or reused it")]
    DescriptorLost { fd: i32 },
    #[error(
        "the file of a shared copy was truncated while it was in use: it has fewer than {len} bytes"
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
                "pass where=\"disk\" or a writable directory, or omit `where` to use memory"
            }
            ShareError::NotWritten { .. } => {
                "free some memory or disk space, or pass where=\"disk\" or a directory on a larger disk"
            }
            ShareError::NotMapped { .. } => {
                "check the limits of address space (ulimit -v) and of mappings (vm.max_map_count)"
            }
            ShareError::OwnerGone { .. } | ShareError::NotTheSame { .. } => {
                "keep the shared object in the process that pickles it until every worker has started; \
                 it cannot be stored for a later run; share the data again there"
            }
            ShareError::NotOpened { .. } => {
                "run both processes as the same user, in the same PID namespace"
            }
            ShareError::DescriptorLost { .. } => {
                "do not close descriptors that you did not open, or call `share` after closing them"
            }
            ShareError::Truncated { .. } => {
                "share the data again, in memory or on another disk: something wrote to the file through /proc, or the \
                 disk failed"
            }
            ShareError::Damaged(_) => {
                "share the data again; if the error returns, please report it"
            }
        }
    }
}
