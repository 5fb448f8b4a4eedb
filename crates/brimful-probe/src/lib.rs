//! Reads what a machine really allows. Changes nothing: no process is started, no file is written,
//! no CUDA context is made.
//!
//! Everything is read below one root directory and one set of environment variables ([`Surroundings`]),
//! so a recorded tree of another machine is read by the same code as the machine itself.
//! A hole is not an error: what cannot be read becomes a [`Fact::Missing`] with its reason, and the rest goes on.
//!
//! Read first: [`Surroundings`] and [`probe`].
//!
//! ```
//! use brimful::fact::Fact;
//! use brimful_probe::{Surroundings, probe};
//!
//! // A machine of which nothing is recorded: every fact is missing, and says why.
//! let empty = Surroundings::recorded("/nonexistent", Default::default());
//! let machine = probe(&empty);
//! assert_eq!(machine.host.physical.gap().unwrap().to_string(), "/proc/meminfo does not exist");
//! ```

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests make files of all kinds")
)]

mod cgroup;
mod cpus;
mod environment;
mod files;
mod gpu;
mod gpu_status;
mod host;
mod isolation;
mod killers;
mod meter;
mod nvml;
mod platform;
mod process_limits;
mod processes;
mod python;
mod shm;
mod surroundings;

#[cfg(target_os = "linux")]
mod linux;
mod unsupported;

use brimful::allocator;
use brimful::fact::Fact;
use brimful::machine::{Machine, Subject};

pub use cgroup::parse as cgroup_parse;
pub use environment::{Environment, current_environment};
pub use files::parse as file_parse;
pub use gpu_status::{ClockStatus, DriverStatus, GpuStatus, MemoryStatus};
pub use meter::{Cgroup, CgroupCounts, Meter, StallTotals};
#[cfg(target_os = "linux")]
pub use nvml::{GpuMeter, GpuUse};
pub use nvml::{NvmlDevice, NvmlMigInstance, NvmlProcess, NvmlSnapshot, snapshot_of_library};
pub use processes::{ProcessFacts, ProcessMemory, Processes, descendants};
pub use python::{PythonHint, parse as python_parse};
pub use shm::FilesystemSpace;
pub use surroundings::Surroundings;
pub use unsupported::PlatformUnsupported;

use files::Files;

/// Reads every fact. Takes a few milliseconds and never fails as a whole.
pub fn probe(surroundings: &Surroundings) -> Machine {
    let files = Files::new(&surroundings.root);
    let env = &surroundings.env;
    let mounts = cgroup::Mounts::read(&files);
    let platform = platform::read(&files, env);
    let python = python::read(&files, env, &surroundings.python);
    let torch = python
        .known()
        .and_then(|python| python.torch.known())
        .cloned();
    Machine {
        subject: Subject::this_machine(),
        host: host::read(&files, &mounts, &platform),
        shm: shm::read(&mounts, &surroundings.shm_space),
        process_limits: process_limits::read(&files),
        cpus: cpus::read(&files, &mounts),
        gpus: gpu::read(&files, env, &platform, &surroundings.nvml),
        isolation: Fact::Known(isolation::read(
            &files,
            env,
            &mounts,
            &surroundings.landlock,
        )),
        platform,
        python,
        allocator_variables: allocator::variables(
            env.iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
            torch.as_ref(),
        ),
    }
}
