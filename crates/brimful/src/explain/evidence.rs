//! What a verdict may rest on.

use crate::record::{AttemptLine, EndLine, GpuProof, HookLine, LoaderLine};
use crate::units::Bytes;
use crate::watch::{Alarm, Sample};

/// Everything known about an attempt. Each part may be missing: a pasted log has only text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    pub attempt: Option<AttemptLine>,
    /// How it ended and what the kernel counted; `None` for a pasted log, or where brimful was killed too.
    pub end: Option<EndLine>,
    /// The record has no end: brimful itself was killed or the machine went down.
    pub supervisor_died: bool,
    /// Oldest first.
    pub samples: Vec<Sample>,
    pub alarms: Vec<Alarm>,
    pub loaders: Vec<LoaderLine>,
    pub hook: Vec<HookLine>,
    /// What PyTorch knew when it ran out of a card's memory, oldest first.
    pub cuda_ooms: Vec<GpuProof>,
    /// What a replay of the allocator's snapshot says.
    pub replay: Option<SnapshotReplay>,
    /// What was printed: the end of a run's output, a log, a pasted traceback.
    pub text: String,
}

/// A CUDA memory snapshot, as it was and under other settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotReplay {
    /// What could not be had, if the snapshot ends in an out-of-memory error.
    pub asked: Option<Bytes>,
    pub allocated: Bytes,
    pub reserved: Bytes,
    /// The largest free piece inside of what is reserved, and the sum of all of them.
    pub largest_free_block: Bytes,
    pub free_in_segments: Bytes,
    pub device_free: Option<Bytes>,
    pub device_total: Option<Bytes>,
    /// Whether the record holds allocations and frees in order, so that other settings could be tried.
    pub has_history: bool,
    /// Other settings on the same card, best first.
    pub answers: Vec<SnapshotAnswer>,
}

/// What would have happened under other settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotAnswer {
    pub alloc_conf: String,
    pub fits: bool,
    pub peak_reserved: Bytes,
    pub to_spare: Bytes,
}
