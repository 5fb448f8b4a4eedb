//! What the hook writes about one process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::host::HostReport;

/// One process that used the GPU. Unknown fields are ignored; the hook and this file travel together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    pub reason: EndReason,
    /// Which of the asked cards; nothing for a script with several processes, which runs on the first one only.
    pub variant: Option<usize>,
    /// 0: on a card of its real size; later ones have more room.
    pub attempt: u32,
    pub torch: String,
    pub rank: u32,
    pub world_size: u32,
    pub device: u32,
    /// Allocations and frees so far, kind, text.
    pub marks: Vec<(u64, String, String)>,
    /// Address, kind, name: at the mark `tensors`.
    pub tensors: Vec<(u64, TensorKind, String)>,
    pub steps: u32,
    pub evaluated: u32,
    pub saved: u32,
    pub compiled: bool,
    /// Kind to how often and where.
    pub caveats: BTreeMap<String, (u64, String)>,
    pub problems: Vec<String>,
    pub cudnn_benchmark: bool,
    pub phantom: Option<PhantomReport>,
    /// Torch has no CUDA: shapes without values stood in for the card's tensors.
    #[serde(default)]
    pub fake_tensors: bool,
    /// Calls of convolutions, where the phantom was not there to plan them.
    #[serde(default)]
    pub convolutions: u64,
    #[serde(default)]
    pub peak_allocated_bytes: u64,
    #[serde(default)]
    pub peak_reserved_bytes: u64,
    #[serde(default)]
    pub ooms: u64,
    /// Memory of the host; nothing where the hook could not measure it.
    #[serde(default)]
    pub host: Option<HostReport>,
    /// Python files of the script itself.
    #[serde(default)]
    pub sources: Vec<PathBuf>,
}

/// Why the hook wrote its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The requested steps were made.
    Steps,
    /// The script ended by itself.
    End,
    /// One that this release does not know.
    #[serde(other)]
    Other,
}

/// What a tensor is for, as the hook found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorKind {
    Weight,
    Buffer,
    Gradient,
    /// State of an optimizer.
    State,
    /// One that this release does not know.
    #[serde(other)]
    Other,
}

/// What the phantom saw.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhantomReport {
    pub unknown_entry_points: Vec<String>,
    pub guesses: Vec<String>,
    pub cudnn: String,
    pub cudnn_plans: u64,
    pub managed_bytes: u64,
    /// Devices that the script sees and that were not asked for.
    pub added_devices: u32,
    pub nccl_communicators: Vec<Communicators>,
}

/// Communicators of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Communicators {
    pub ranks: u32,
    pub count: u32,
}
