//! The outward form of replays: what `brimful replay --json` prints.

use schemars::JsonSchema;
use serde::Serialize;

/// What would have happened under each capacity and setting.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "brimful replay")]
pub struct ReplayDocument {
    /// The version of this document's form.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// The file that was replayed.
    pub file: String,
    /// The PyTorch whose rules were followed.
    pub torch_version: String,
    /// Whether that is a guess: the record names no version and none was given.
    pub torch_version_assumed: bool,
    /// The device of the record.
    pub device: u32,
    /// Allocations and frees of the record.
    pub events: u64,
    /// How the model compares with the record itself; `null` where the record has no addresses to compare.
    pub agreement: Option<ReplayAgreement>,
    /// One for each capacity and setting, in the order asked.
    pub results: Vec<ReplayResult>,
}

/// How many allocations land where the record has them, given only where the driver put new segments.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReplayAgreement {
    /// Allocations of the record.
    pub allocations: u64,
    /// Allocations that the model puts at the same address.
    pub same_address: u64,
}

/// One replay.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ReplayResult {
    /// The card, where one was named.
    pub gpu: Option<String>,
    /// The allocator's settings, as in `PYTORCH_CUDA_ALLOC_CONF`; empty for the default.
    pub alloc_conf: String,
    /// Bytes of the card.
    pub capacity_bytes: u64,
    /// Bytes in use at the most, up to the end or to running out of memory.
    pub peak_allocated_bytes: u64,
    /// Bytes held at the most.
    pub peak_reserved_bytes: u64,
    /// Whether it ran out of memory.
    pub oom: bool,
    /// The bytes that could not be had.
    pub oom_request_bytes: Option<u64>,
    /// Times that cached memory had to be given back to go on.
    pub retries: u64,
}
