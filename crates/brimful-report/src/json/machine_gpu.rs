//! The GPUs of this machine, in the documents of `predict` and `compare`.

use brimful::machine::{self, MigInstance};
use brimful::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::GpuProcess;

/// Where the GPU models of an answer come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpusFrom {
    /// The user named them.
    #[default]
    Requested,
    /// They are those of this machine.
    Machine,
    /// This machine has none that is known: what most people can rent.
    Usual,
}

impl GpusFrom {
    /// As in documents.
    pub const fn id(self) -> &'static str {
        match self {
            GpusFrom::Requested => "requested",
            GpusFrom::Machine => "machine",
            GpusFrom::Usual => "usual",
        }
    }

    /// What documents of releases before this field were about.
    pub(crate) fn before() -> String {
        GpusFrom::Requested.id().to_owned()
    }
}

/// A GPU of this machine, or a MIG instance of one, and what is free on it now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineGpu {
    /// The index of the GPU, as in `nvidia-smi`.
    pub index: u32,
    /// The GPU model.
    pub name: String,
    /// Total memory as reported by torch.
    pub total_bytes: Option<u64>,
    /// Memory that a new process can use now.
    pub free_bytes: Option<u64>,
    /// Memory in use by processes.
    pub used_bytes: Option<u64>,
    /// Processes that hold its memory; `null` if they are not known.
    pub processes: Option<Vec<GpuProcess>>,
    /// Whether the run fits in the memory that is free now, by the safe value; `null` if it is not known.
    pub fits_now: Option<bool>,
}

impl MachineGpu {
    /// A whole GPU, under the name of its model in the catalogue.
    pub fn of(index: u32, name: &str, gpu: &machine::Gpu) -> MachineGpu {
        let torch = gpu.torch_memory.known().map(|memory| memory.bytes);
        let processes = gpu.processes.known().map(|processes| {
            let process = |process: &machine::GpuProcess| GpuProcess {
                pid: process.pid,
                name: process.name.known().cloned(),
                used_bytes: process.used.known().copied().map(Bytes::get),
            };
            processes.iter().map(process).collect()
        });
        MachineGpu {
            index,
            name: name.to_owned(),
            total_bytes: torch.or_else(|| gpu.total.known().copied()).map(Bytes::get),
            free_bytes: gpu.free().map(Bytes::get),
            used_bytes: gpu.used.known().copied().map(Bytes::get),
            processes,
            fits_now: None,
        }
    }

    /// An instance of the GPU with this index.
    pub fn of_instance(index: u32, name: &str, instance: &MigInstance) -> MachineGpu {
        let total = instance.total.known().copied();
        let used = instance.used.known().copied();
        let free = total.zip(used);
        MachineGpu {
            index,
            name: name.to_owned(),
            total_bytes: total.map(Bytes::get),
            free_bytes: free.map(|(total, used)| total.saturating_sub(used).get()),
            used_bytes: used.map(Bytes::get),
            processes: None,
            fits_now: None,
        }
    }

    /// The same with the answer whether a run fits that needs `safe` bytes on such a GPU.
    #[must_use]
    pub fn with_need(self, safe: Option<u64>) -> MachineGpu {
        let fits_now = self.free_bytes.zip(safe).map(|(free, safe)| safe <= free);
        MachineGpu { fits_now, ..self }
    }
}
