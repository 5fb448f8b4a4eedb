//! What a snapshot holds.

use std::sync::Arc;

/// The allocator of one process, on all of its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// In the order of the file; torch sorts each device's by address.
    pub segments: Vec<Segment>,
    /// What happened before, oldest first, by device index; empty when nothing was recorded.
    pub traces: Vec<Vec<TraceEntry>>,
    /// The allocator's settings in effect, nested ones as `roundup_power2_divisions.1`; `None` when
    /// the file has none. `PYTORCH_CUDA_ALLOC_CONF` is the text that was set.
    pub settings: Option<Vec<(String, String)>>,
    /// What the fields tell of the version of torch that wrote them, such as "newer than 2.9".
    pub torch_hint: Option<&'static str>,
    /// The places in code that [`TraceEntry::frames`] and [`Block::frames`] point to.
    pub frames: Vec<Frame>,
    /// The names that [`TraceAction::Other`] points to.
    pub other_actions: Vec<String>,
}

impl Snapshot {
    /// The text that was set as `PYTORCH_CUDA_ALLOC_CONF`, where the file has it.
    pub fn alloc_conf(&self) -> Option<&str> {
        let settings = self.settings.as_ref()?;
        let found = settings
            .iter()
            .find(|(name, _)| name == "PYTORCH_CUDA_ALLOC_CONF")?;
        Some(&found.1)
    }
}

/// Memory that was reserved in one piece, or one mapped range of an expandable segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub device: u32,
    pub address: u64,
    pub total_size: u64,
    /// 0 is the default stream, also for files that name none.
    pub stream: u64,
    pub pool: PoolKind,
    /// `(0, 0)` is the common pool, also for files that name none.
    pub private_pool: (u64, u64),
    pub expandable: bool,
    /// In the order of the file, one after the other.
    pub blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    Small,
    Large,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Computed from the sizes before it where the file has none.
    pub address: u64,
    pub size: u64,
    /// The size itself where the file has none.
    pub requested_size: u64,
    pub state: BlockState,
    /// Where it was allocated: index into [`Snapshot::frames`].
    pub frames: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockState {
    Inactive,
    ActiveAllocated,
    /// Freed, but another stream may still use it; written `active_pending_free` or `active_awaiting_free`.
    ActiveAwaitingFree,
}

/// One thing the allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    pub action: TraceAction,
    /// 0 for [`TraceAction::OutOfMemory`], which has none.
    pub address: u64,
    /// For [`TraceAction::OutOfMemory`] the bytes that could not be had.
    pub size: u64,
    pub stream: u64,
    /// Since 1970; 0 in files of versions that recorded no time.
    pub time_us: i64,
    /// Bytes that CUDA still reported free; for [`TraceAction::OutOfMemory`] only.
    pub device_free: Option<u64>,
    /// `None` in files of versions that recorded no pool.
    pub private_pool: Option<(u64, u64)>,
    /// Where in the user's code: index into [`Snapshot::frames`].
    pub frames: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceAction {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    Snapshot,
    OutOfMemory,
    /// Index into [`Snapshot::other_actions`], such as `annotate` of torch 2.15.
    Other(u32),
}

/// A line of Python code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub file: Arc<str>,
    /// 0 when not known.
    pub line: u32,
    /// The function.
    pub name: Arc<str>,
}
