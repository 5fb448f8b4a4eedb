//! What a snapshot holds.

use std::num::NonZeroU32;
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
    /// The places in code that [`TraceEntry::frame`] and [`Block::frame`] point to.
    pub frames: Vec<Frame>,
    /// What [`TraceEntry::private_pool`] points to.
    pub private_pools: Vec<(u64, u64)>,
    /// What [`TraceEntry::device_free`] points to: bytes that CUDA still reported free.
    pub device_free: Vec<u64>,
    /// The names that [`TraceAction::Other`] points to.
    pub other_actions: Vec<String>,
}

/// Where something is in a table of [`Snapshot`]: four bytes, also for an `Option` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableIndex(NonZeroU32);

impl TableIndex {
    /// `None` beyond 32 bits, of which no file that is read comes near.
    pub fn new(idx: usize) -> Option<TableIndex> {
        let above_zero = u32::try_from(idx).ok()?.checked_add(1)?;
        NonZeroU32::new(above_zero).map(TableIndex)
    }

    pub fn get(self) -> usize {
        self.0.get() as usize - 1
    }
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

    /// The last allocation of a device that failed, as its history has it.
    pub fn last_failure(&self, device: u32) -> Option<FailedAllocation> {
        let trace = self.traces.get(device as usize)?;
        let entry = trace
            .iter()
            .rfind(|entry| entry.action == TraceAction::OutOfMemory)?;
        Some(FailedAllocation {
            size: entry.size,
            device_free: entry
                .device_free
                .and_then(|idx| self.device_free.get(idx.get()).copied()),
        })
    }

    /// The pool of an event; `None` in files of versions that recorded none.
    pub fn private_pool(&self, entry: &TraceEntry) -> Option<(u64, u64)> {
        self.private_pools.get(entry.private_pool?.get()).copied()
    }

    /// The line of code of an event or a block.
    pub fn frame(&self, idx: Option<TableIndex>) -> Option<&Frame> {
        self.frames.get(idx?.get())
    }
}

/// An allocation that the allocator could not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAllocation {
    /// The bytes that could not be had.
    pub size: u64,
    /// Bytes that CUDA still reported free, where the file has them.
    pub device_free: Option<u64>,
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
    /// Where it was allocated, in [`Snapshot::frames`].
    pub frame: Option<TableIndex>,
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
    /// In [`Snapshot::device_free`]; for [`TraceAction::OutOfMemory`] only.
    pub device_free: Option<TableIndex>,
    /// In [`Snapshot::private_pools`]; `None` in files of versions that recorded no pool.
    pub private_pool: Option<TableIndex>,
    /// Where in the user's code, in [`Snapshot::frames`].
    pub frame: Option<TableIndex>,
}

// A history has millions of them.
const _: () = assert!(size_of::<TraceEntry>() == 40);

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
    Other(u16),
}

/// A line of Python code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub file: Arc<str>,
    /// 0 when not known.
    pub line: u32,
    /// The function.
    pub name: Arc<str>,
}
