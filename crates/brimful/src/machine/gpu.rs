//! GPUs: what the driver says of them, and what PyTorch will see.

use std::fmt;
use std::str::FromStr;

use crate::fact::Fact;
use crate::units::Bytes;

/// All GPUs of the machine, visible to PyTorch or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpus {
    pub devices: Vec<Gpu>,
    /// Why the list may be incomplete, such as a driver library that could not be loaded.
    pub complete: Fact<()>,
    pub driver_version: Fact<String>,
    /// The newest CUDA the driver can serve.
    pub driver_cuda: Fact<(u32, u32)>,
    /// The raw `CUDA_VISIBLE_DEVICES` (or `HIP_VISIBLE_DEVICES`), if set.
    pub visible_devices_variable: Option<(String, String)>,
    /// The entry of that variable at which CUDA stops reading, if one names no device.
    pub visible_devices_end_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    pub vendor: GpuVendor,
    pub name: Fact<String>,
    pub uuid: Fact<String>,
    pub compute_capability: Fact<ComputeCapability>,
    pub multiprocessors: Fact<u32>,
    /// What the driver's management library says the card has.
    pub total: Fact<Bytes>,
    /// Memory in use by processes; what the driver keeps for itself is not part of it.
    pub used: Fact<Bytes>,
    /// What the driver keeps for itself.
    pub reserved: Fact<Bytes>,
    pub torch_memory: Fact<TorchMemory>,
    /// The index PyTorch will give it; `Known(None)` where it is hidden from PyTorch.
    pub torch_index: Fact<Option<u32>>,
    pub processes: Fact<Vec<GpuProcess>>,
    pub ecc: Fact<bool>,
    /// Multi-instance mode: `Known(None)` is off, else the instances of the card.
    pub mig: Fact<Option<Vec<MigInstance>>>,
}

/// The memory PyTorch will report as the card's total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchMemory {
    pub bytes: Bytes,
    pub origin: TorchMemoryOrigin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TorchMemoryOrigin {
    /// The driver's total less what the driver keeps for itself.
    Driver,
    /// The catalogue of cards.
    Catalogue { how: &'static str },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuVendor {
    Nvidia,
    Amd,
}

/// A process that holds memory of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    pub pid: u32,
    pub name: Fact<String>,
    pub used: Fact<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    pub uuid: Fact<String>,
    pub name: Fact<String>,
    pub total: Fact<Bytes>,
    pub used: Fact<Bytes>,
    pub torch_index: Fact<Option<u32>>,
}

/// NVIDIA's generation number, such as 7.5 for Turing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    pub major: u32,
    pub minor: u32,
}

impl ComputeCapability {
    pub const fn new(major: u32, minor: u32) -> ComputeCapability {
        ComputeCapability { major, minor }
    }

    /// The most threads that a multiprocessor can run at a time, by the table "Technical Specifications per Compute
    /// Capability" in NVIDIA's CUDA C++ Programming Guide.
    pub const fn threads_per_multiprocessor(self) -> u32 {
        match (self.major, self.minor) {
            (7, 5) => 1024,
            (8, 6 | 7 | 9) | (11 | 12, _) => 1536,
            _ => 2048,
        }
    }
}

impl GpuVendor {
    pub fn id(self) -> &'static str {
        match self {
            GpuVendor::Nvidia => "nvidia",
            GpuVendor::Amd => "amd",
        }
    }
}

impl Gpu {
    /// The card's name, or what stands for it in a sentence.
    pub fn label(&self) -> &str {
        self.name.known().map_or("unnamed GPU", String::as_str)
    }

    /// Whether torch may see it, whole or in part; only what is surely hidden is not.
    pub fn may_be_seen(&self) -> bool {
        let instances = self.mig.known().and_then(Option::as_ref);
        let instance_seen = instances.is_some_and(|instances| {
            instances
                .iter()
                .any(|instance| instance.torch_index.known() != Some(&None))
        });
        instance_seen || self.torch_index.known() != Some(&None)
    }

    /// What a new process could get at most.
    pub fn free(&self) -> Option<Bytes> {
        let usable = match &self.torch_memory {
            Fact::Known(memory) => memory.bytes,
            Fact::Missing(_) => *self.total.known()?,
        };
        Some(usable.saturating_sub(*self.used.known()?))
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ComputeCapability {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.split_once('.').ok_or(())?;
        Ok(ComputeCapability {
            major: major.parse().map_err(|_| ())?,
            minor: minor.parse().map_err(|_| ())?,
        })
    }
}
