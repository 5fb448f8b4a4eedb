//! Why there is nothing to show.

use std::io;
use std::path::PathBuf;

use brimful::live::LiveRun;
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_supervise::AttachedRun;

/// A run cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum TopError {
    #[error("failed to read the run record")]
    Read(#[source] io::Error),
    #[error("`{}` is not a run record", path.display())]
    NotARecord { path: PathBuf },
    #[error("failed to draw on the terminal")]
    Terminal(#[source] io::Error),
}

impl TopError {
    /// An error if the user named a file that does not begin as a record.
    pub(crate) fn check(attached: &AttachedRun, live: &LiveRun) -> Result<(), TopError> {
        match attached {
            AttachedRun::File(path) if !live.has_begun() => {
                Err(TopError::NotARecord { path: path.clone() })
            }
            _ => Ok(()),
        }
    }
}

impl UserError for TopError {
    fn kind(&self) -> ErrorKind {
        match self {
            TopError::NotARecord { .. } => ErrorKind::Input,
            TopError::Read(_) | TopError::Terminal(_) => ErrorKind::Environment,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        vec![match self {
            TopError::Read(_) => Hint::ListRuns,
            TopError::NotARecord { .. } => {
                Hint::text("pass a run ID, the directory of a job, or a record.jsonl")
            }
            TopError::Terminal(_) => Hint::text("pass `--once` to print one frame"),
        }]
    }
}
