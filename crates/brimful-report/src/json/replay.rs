//! The outward form of replays: what `brimful replay --json` prints.

use schemars::JsonSchema;
use serde::Serialize;

/// Results of a replay for each capacity and setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
    /// One result per capacity and setting, in the requested order.
    pub results: Vec<ReplayResult>,
}

/// How many allocations the model places at their recorded address, given only the addresses of new segments.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReplayAgreement {
    /// Number of recorded allocations.
    pub allocations: u64,
    /// Number of allocations that the model places at the same address.
    pub same_address: u64,
}

/// One replay.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
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
}
