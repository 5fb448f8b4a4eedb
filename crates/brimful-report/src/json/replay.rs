//! The outward form of replays: what `brimful replay --json` prints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Results of a replay for each capacity and setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "brimful replay")]
pub struct ReplayDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// The file that was replayed.
    pub file: String,
    /// The modeled PyTorch version.
    pub torch_version: String,
    /// Whether that is an assumption: the file names no version and none was given.
    pub torch_version_assumed: bool,
    /// The replayed device.
    pub device: u32,
    /// Number of allocations and frees in the file.
    pub events: u64,
    /// How closely the model matches the recorded addresses; `null` if the file has none.
    pub agreement: Option<ReplayAgreement>,
    /// Memory over the file with the first result's settings, in at most 480 columns. Empty unless a report was requested.
    #[serde(default)]
    pub timeline: Vec<ReplayColumn>,
    /// Memory in use by line of code; `null` for traces and for snapshots without stack frames.
    #[serde(default)]
    pub by_line: Option<MemoryByLine>,
    /// One result per capacity and setting, in the requested order.
    pub results: Vec<ReplayResult>,
}

/// Memory in use at one moment of a snapshot, by the line of code that allocated it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryByLine {
    /// Whether the moment is the last failed allocation; otherwise it is the peak of allocated memory.
    pub at_failure: bool,
    /// Bytes in use at that moment.
    pub total_bytes: u64,
    /// The lines that hold the most, at most 40.
    pub lines: Vec<LineMemory>,
    /// Bytes of the lines that are not listed.
    pub other_bytes: u64,
}

/// Memory that one line of code allocated and that is still in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineMemory {
    /// The file; `null` if the allocation was made before the history was recorded or without Python code.
    pub file: Option<String>,
    /// The line number; `null` if unknown.
    pub line: Option<u32>,
    /// The function; `null` if unknown.
    pub function: Option<String>,
    /// Bytes in use.
    pub bytes: u64,
    /// Number of allocations.
    pub allocations: u64,
}

/// How many allocations the model places at their recorded address, given only the addresses of new segments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayAgreement {
    /// Number of recorded allocations.
    pub allocations: u64,
    /// Number of allocations that the model places at the same address.
    pub same_address: u64,
}

/// One replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayResult {
    /// The GPU model, if one was named.
    pub gpu: Option<String>,
    /// The allocator settings, as in `PYTORCH_CUDA_ALLOC_CONF`; empty for the default.
    pub alloc_conf: String,
    /// GPU memory available to PyTorch, in bytes.
    pub capacity_bytes: u64,
    /// Peak of allocated bytes, until the end or until memory ran out.
    pub peak_allocated_bytes: u64,
    /// Peak of reserved bytes.
    pub peak_reserved_bytes: u64,
    /// Whether it ran out of memory.
    pub oom: bool,
    /// The size of the failed allocation.
    pub oom_request_bytes: Option<u64>,
    /// Number of times cached memory was freed before a retry.
    pub retries: u64,
    /// Segments and their blocks when the allocation failed, or at the peak of reserved bytes. `null` unless a report was
    /// requested.
    #[serde(default)]
    pub layout: Option<MemoryLayout>,
}

/// Where memory is in use within the segments that PyTorch reserved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLayout {
    /// The largest segments, at most 64.
    pub segments: Vec<LayoutSegment>,
    /// Number of smaller segments that are not listed.
    pub other_segments: u64,
    /// Bytes of those segments.
    pub other_bytes: u64,
    /// Reserved bytes in all segments.
    pub reserved_bytes: u64,
    /// Bytes in use in all segments.
    pub used_bytes: u64,
    /// The largest unused block of all segments.
    pub largest_free_bytes: u64,
}

/// One segment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayoutSegment {
    /// Blocks in the order of their addresses, at most 256; neighbors are merged if there are more.
    pub blocks: Vec<LayoutBlock>,
}

/// One block, or several small neighbors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LayoutBlock {
    /// Its size.
    pub bytes: u64,
    /// Bytes in use: all or none of a single block.
    pub used_bytes: u64,
}

/// Memory over a replay, in columns of equal numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayColumn {
    /// Allocated bytes at the fullest moment of the column.
    pub allocated_bytes: u64,
    /// Reserved bytes at that moment.
    pub reserved_bytes: u64,
}
