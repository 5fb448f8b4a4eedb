//! The facts of one machine, as somebody about to train a model needs them.

mod cgroup;
mod cpus;
mod gpu;
mod host;
mod isolation;
mod platform;
mod process;
mod python;
mod visible_devices;

pub use cgroup::{
    CgroupLevel, CgroupVersion, Cgroups, HiddenAncestors, Usage, group_name, owner_of,
};
pub use cpus::{CpuLimiter, Cpus};
pub use gpu::{
    ComputeCapability, Gpu, GpuProcess, GpuVendor, Gpus, MigInstance, TorchMemory,
    TorchMemoryOrigin,
};
pub use host::{
    Brim, Host, Killer, KillerKind, Limit, LimitEffect, LimitSetter, Overcommit, OvercommitMode,
    Pressure, Swap,
};
pub use isolation::{
    AppArmorProfile, ExpectedIsolation, IsolationSupport, KernelVersion, Landlock, MountPrivilege,
    OverlayObstacle, ScratchFilesystem, UserNamespaces,
};
pub use platform::{Layer, Platform, PlatformName, SlurmJob};
pub use process::{ProcessLimits, Rlimit};
pub use python::{Accelerator, Python, PythonVersion, Torch, TorchVersion};
pub use visible_devices::{DeviceIdentity, DeviceOrder, TorchDevices, Visibility, torch_devices};

use crate::allocator::AllocatorVariable;
use crate::fact::Fact;
use crate::units::Bytes;

/// Everything that is known about one machine.
///
/// It comes from three places that look the same afterwards: the machine brimful runs on, a recorded tree of files
/// (in tests), or a recorded profile of a well-known machine ([`crate::profiles`]).
///
/// Nothing here is a judgement. What the facts mean for a training run is in [`crate::findings`];
/// the one derived figure everybody needs is [`Host::brim`].
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub subject: Subject,
    pub host: Host,
    pub shm: SharedMemory,
    pub process_limits: ProcessLimits,
    pub cpus: Cpus,
    pub gpus: Gpus,
    pub platform: Platform,
    /// What rehearsals can be isolated with.
    pub isolation: Fact<IsolationSupport>,
    pub python: Fact<Python>,
    pub allocator_variables: Vec<AllocatorVariable>,
}

/// Which machine is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub kind: SubjectKind,
    /// Where recorded figures come from; empty for the machine itself.
    pub sources: Vec<String>,
    /// What was put in place of a fact by the user, such as another card.
    pub replaced: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    ThisMachine,
    Profile { id: String, title: String },
}

impl Subject {
    pub fn this_machine() -> Subject {
        Subject {
            kind: SubjectKind::ThisMachine,
            sources: Vec::new(),
            replaced: Vec::new(),
        }
    }
}

/// The shared-memory filesystem through which DataLoader workers hand over batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMemory {
    pub path: String,
    pub total: Fact<Bytes>,
    pub free: Fact<Bytes>,
    /// Whether a page stored there also fills the memory limit of this process.
    pub counts_against_brim: Fact<bool>,
}
