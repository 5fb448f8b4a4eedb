//! Why a checkpoint is not resumed from.

use std::time::Duration;

use crate::checkpoints::checkpoint::Incomplete;

/// Why a checkpoint is not resumed from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(transparent)]
    Incomplete(#[from] Incomplete),
    #[error("it belongs to another user (uid {uid})")]
    Owner { uid: u32 },
    #[error("`{name}` in it belongs to another user (uid {uid})")]
    PartOwner { name: String, uid: u32 },
    #[error("it has too many files to check their owners")]
    TooManyFiles,
    #[error("its modification time is {} in the future", rounded(*ahead))]
    FromTheFuture { ahead: Duration },
    #[error("it was written while the job was rehearsed")]
    WrittenDuringRehearsal,
    #[error("its tensors are all zero")]
    AllZero,
    #[error("its path is not valid UTF-8")]
    PathNotText,
}

impl Refusal {
    /// Whether `brimful run --force` accepts it all the same.
    ///
    /// Not what was written while this very run rehearsed: nobody wants to resume from that, and the next run no longer
    /// knows of it.
    pub fn is_lifted_by_force(&self) -> bool {
        matches!(
            self,
            Refusal::Owner { .. }
                | Refusal::PartOwner { .. }
                | Refusal::TooManyFiles
                | Refusal::FromTheFuture { .. }
                | Refusal::AllZero
        )
    }

    /// Whether a training may have put its progress there. A directory of another kind and a file that is still being
    /// written hold none.
    pub fn may_hold_progress(&self) -> bool {
        !matches!(
            self,
            Refusal::Incomplete(
                Incomplete::UnknownDirectory | Incomplete::BeingWritten | Incomplete::NoFile
            )
        )
    }
}

/// Minutes, hours or days: a clock that is wrong is wrong by many of them.
fn rounded(time: Duration) -> String {
    let minutes = (time.as_secs() + 30) / 60;
    match minutes {
        0..120 => format!("{minutes} minutes"),
        120..2880 => format!("{} hours", (minutes + 30) / 60),
        _ => format!("{} days", (minutes + 720) / 1440),
    }
}
