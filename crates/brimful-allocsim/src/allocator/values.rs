//! What the allocator is asked and tells: pools, statistics, segments, errors.

/// Which memory a request is served from: the default one, or the private pool of a CUDA graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PoolId(pub u32);

impl PoolId {
    /// What every tensor outside of graph captures uses.
    pub const DEFAULT: PoolId = PoolId(0);
}

/// The request could not be served, as PyTorch's message would put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "out of memory: tried to allocate {requested} bytes with {allocated} allocated, {reserved} reserved \
     and {device_unused} free on the GPU"
)]
pub struct OutOfMemory {
    /// The bytes of the segment that was asked for.
    pub requested: u64,
    pub allocated: u64,
    pub reserved: u64,
    pub device_unused: u64,
}

/// A figure now and at its highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    pub current: u64,
    pub peak: u64,
}

impl Stat {
    pub(super) fn add(&mut self, amount: u64) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
    }

    pub(super) fn subtract(&mut self, amount: u64) {
        self.current -= amount;
    }
}

/// What `torch.cuda.memory_stats` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Bytes of blocks that are handed out.
    pub allocated: Stat,
    /// The same, plus blocks given back that another stream may still use.
    pub active: Stat,
    /// What was asked for, before rounding, in active blocks.
    pub requested: Stat,
    /// Bytes of segments.
    pub reserved: Stat,
    /// Requests that succeeded only after cached segments were given back (or failed even then).
    pub retries: u64,
    pub ooms: u64,
    pub device_allocs: u64,
    pub device_frees: u64,
}

/// One contiguous range with memory behind it, as `torch.cuda.memory_snapshot` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentView {
    pub address: u64,
    pub size: u64,
    pub stream: u64,
    pub small: bool,
    /// Size, and whether it is in use (handed out, or waiting for another stream).
    pub blocks: Vec<(u64, bool)>,
}

/// A segment found in a running process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSegment {
    pub address: u64,
    pub size: u64,
    pub stream: u64,
    pub small: bool,
    pub pool: PoolId,
}

/// A found segment cannot be put in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    #[error("the device has no room for the segment")]
    NoRoom,
    #[error("the blocks are not adjacent within the segment")]
    Layout,
    #[error("with this `max_split_size_mb` the segment would not be split")]
    Split,
}
