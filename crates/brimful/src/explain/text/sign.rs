//! One thing a text says.

use crate::explain::text::cuda_message::CudaMessage;
use crate::explain::{Cause, Detail};
use crate::units::Bytes;

/// Something in a text that speaks for a cause.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::explain) struct Sign {
    pub(in crate::explain) cause: Cause,
    /// As in a verdict.
    pub(in crate::explain) detail: Detail,
    pub(in crate::explain) rank: Rank,
    /// Where, in bytes of the reading's `flat`: what was said first is the suspected root.
    pub(in crate::explain) at: usize,
    pub(in crate::explain) facts: Facts,
}

/// How much a sign decides, most first. Among equals the first in the text wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::explain) enum Rank {
    /// Whoever killed says so: the kernel's log, a scheduler, an orchestrator.
    Killer,
    /// An error that names its cause.
    Named,
    /// An error that speaks of memory in words we do not know.
    Hinted,
    /// A process was ended by a signal, or waited for one that was.
    Signaled,
    /// An error that may have been caused by another.
    Raised,
    /// What launchers say when something else went wrong.
    Aftermath,
}

/// Figures of a sign.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::explain) struct Facts {
    pub(in crate::explain) pids: Vec<u32>,
    pub(in crate::explain) cuda: Option<CudaMessage>,
    /// A line of the kernel's log about a kill, or a scheduler's count of them.
    pub(in crate::explain) is_count: bool,
    /// What was asked for.
    pub(in crate::explain) asked: Option<Bytes>,
    /// Of a launcher, as it counts.
    pub(in crate::explain) process_rank: Option<u32>,
}
