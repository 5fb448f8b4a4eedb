//! What NVIDIA's management library says, as plain values.
//!
//! The library is loaded at run time and asked without a CUDA context, so looking costs no GPU memory.

use std::path::Path;

use brimful::fact::Fact;
use brimful::machine::ComputeCapability;
use brimful::units::Bytes;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, cuda_driver_version_major, cuda_driver_version_minor};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlMemory_t, nvmlReturn_enum_NVML_SUCCESS};

/// One look at all NVIDIA GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct NvmlSnapshot {
    pub driver_version: Fact<String>,
    pub cuda_version: Fact<(u32, u32)>,
    pub devices: Vec<NvmlDevice>,
}

/// One GPU, in the library's own order (by PCI bus).
#[derive(Clone, Debug, PartialEq)]
pub struct NvmlDevice {
    pub name: Fact<String>,
    pub uuid: Fact<String>,
    pub compute_capability: Fact<ComputeCapability>,
    pub total: Fact<Bytes>,
    /// Used by processes; without what the driver keeps for itself.
    pub used: Fact<Bytes>,
    /// Kept by the driver for itself; unknown with drivers before 510.
    pub reserved: Fact<Bytes>,
    pub multiprocessors: Fact<u32>,
    pub ecc: Fact<bool>,
    pub processes: Fact<Vec<NvmlProcess>>,
    /// `Known(None)`: multi-instance mode is off or not there.
    pub mig: Fact<Option<Vec<NvmlMigInstance>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmlProcess {
    pub pid: u32,
    /// Missing under Windows' driver model (WSL 2) and for other people's processes.
    pub used: Fact<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmlMigInstance {
    pub uuid: Fact<String>,
    pub name: Fact<String>,
    pub total: Fact<Bytes>,
    pub used: Fact<Bytes>,
}

/// Where the driver's library may lie: by name for the loader, then where WSL 2 and some containers put it.
#[cfg(target_os = "linux")]
const LIBRARIES: [&str; 3] = [
    "libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
    "/usr/lib64-nvidia/libnvidia-ml.so.1", // Colab
];

/// Asks the driver of this machine.
#[cfg(target_os = "linux")]
pub(crate) fn live() -> Fact<NvmlSnapshot> {
    load().and_then(|(nvml, library)| snapshot(&nvml, library.as_ref()))
}

/// The driver's library of this machine, ready to answer.
#[cfg(target_os = "linux")]
fn load() -> Fact<(Nvml, &'static str)> {
    let mut first_error = None;
    for library in LIBRARIES {
        match Nvml::builder().lib_path(library.as_ref()).init() {
            Ok(nvml) => return Fact::Known((nvml, library)),
            Err(error) => {
                let loaded = !matches!(error, NvmlError::LibloadingError(_));
                let reason = reason_of(&error);
                if loaded {
                    return Fact::unavailable(reason);
                }
                first_error.get_or_insert(reason);
            }
        }
    }
    Fact::unavailable(first_error.unwrap_or_else(|| "no library was tried".into()))
}

/// The memory of every GPU, read repeatedly: the library stays loaded, and only values that change are queried.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct GpuMeter {
    nvml: Nvml,
    library: &'static str,
}

/// The memory in use on one GPU, and by which processes.
#[cfg(target_os = "linux")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuUse {
    /// As the driver counts.
    pub index: u32,
    pub total: Bytes,
    pub used: Bytes,
    pub processes: Fact<Vec<NvmlProcess>>,
}

#[cfg(target_os = "linux")]
impl GpuMeter {
    /// The GPUs of this machine, or why they cannot be seen.
    pub fn live() -> Fact<GpuMeter> {
        load().map(|(nvml, library)| GpuMeter { nvml, library })
    }

    /// The model of each GPU, by its index. A GPU that does not answer is left out.
    pub fn names(&self) -> Vec<(u32, String)> {
        let count = self.nvml.device_count().unwrap_or(0).min(64);
        (0..count)
            .filter_map(|index| {
                let name = self.nvml.device_by_index(index).ok()?.name().ok()?;
                Some((index, name))
            })
            .collect()
    }

    /// The version of the driver, where it says it.
    pub fn driver_version(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    /// What is used now. A GPU that does not answer is left out.
    pub fn read(&self) -> Vec<GpuUse> {
        let count = self.nvml.device_count().unwrap_or(0).min(64);
        (0..count)
            .filter_map(|index| {
                let device = self.nvml.device_by_index(index).ok()?;
                let memory = memory_of(&device, self.library.as_ref());
                let memory = memory.known()?;
                Some(GpuUse {
                    index,
                    total: Bytes(memory.total),
                    used: Bytes(memory.used),
                    // An instance has memory of its own: who uses another one takes nothing of it.
                    processes: if device.mig_mode().is_ok_and(|mode| mode.current != 0) {
                        Fact::unavailable("the GPU is split into instances")
                    } else {
                        processes_of(&device)
                    },
                })
            })
            .collect()
    }
}

/// Loads one given library and asks it.
pub fn snapshot_of_library(path: &Path) -> Fact<NvmlSnapshot> {
    match Nvml::builder().lib_path(path.as_os_str()).init() {
        Ok(nvml) => snapshot(&nvml, path),
        Err(error) => Fact::unavailable(reason_of(&error)),
    }
}

/// Major and minor of a version such as 12040.
pub(crate) fn cuda_version(version: i32) -> Option<(u32, u32)> {
    let major = u32::try_from(cuda_driver_version_major(version)).ok()?;
    let minor = u32::try_from(cuda_driver_version_minor(version)).ok()?;
    Some((major, minor))
}

pub(crate) fn reason_of(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(_) => {
            "no NVIDIA driver library (libnvidia-ml.so.1) is installed here".into()
        }
        NvmlError::DriverNotLoaded => "the NVIDIA driver is installed but not loaded".into(),
        NvmlError::NoPermission => "the NVIDIA devices may not be opened by this user".into(),
        NvmlError::FailedToLoadSymbol(_) => "the NVIDIA driver is too old to answer this".into(),
        NvmlError::LibRmVersionMismatch => {
            "the NVIDIA driver and its library have different versions; a reboot usually cures it"
                .into()
        }
        other => format!("the NVIDIA driver answered: {other}"),
    }
}

fn fact<T>(answer: Result<T, NvmlError>) -> Fact<T> {
    match answer {
        Ok(value) => Fact::Known(value),
        Err(error) => Fact::unavailable(reason_of(&error)),
    }
}

fn snapshot(nvml: &Nvml, library: &Path) -> Fact<NvmlSnapshot> {
    fact(nvml.device_count()).map(|count| NvmlSnapshot {
        driver_version: fact(nvml.sys_driver_version()),
        cuda_version: fact(nvml.sys_cuda_driver_version()).and_then(|version| {
            match cuda_version(version) {
                Some(version) => Fact::Known(version),
                None => Fact::unavailable("the driver names no CUDA version"),
            }
        }),
        devices: (0..count.min(64))
            .map(|idx| match nvml.device_by_index(idx) {
                Ok(device) => read_device(&device, library),
                // Kept in its place: leaving it out would shift the numbers of the others.
                Err(error) => NvmlDevice::lost(&reason_of(&error)),
            })
            .collect(),
    })
}

impl NvmlDevice {
    /// A GPU that does not answer.
    pub(crate) fn lost(reason: &str) -> NvmlDevice {
        NvmlDevice {
            name: Fact::unavailable(reason),
            uuid: Fact::unavailable(reason),
            compute_capability: Fact::unavailable(reason),
            total: Fact::unavailable(reason),
            used: Fact::unavailable(reason),
            reserved: Fact::unavailable(reason),
            multiprocessors: Fact::unavailable(reason),
            ecc: Fact::unavailable(reason),
            processes: Fact::unavailable(reason),
            mig: Fact::unavailable(reason),
        }
    }
}

/// A GPU's memory, as far as the driver reports it.
struct Memory {
    total: u64,
    used: u64,
    reserved: Fact<Bytes>,
}

fn memory_of(device: &Device<'_>, library: &Path) -> Fact<Memory> {
    match device.memory_info() {
        Ok(memory) => Fact::Known(Memory {
            total: memory.total,
            used: memory.used,
            reserved: Fact::Known(Bytes(memory.reserved)),
        }),
        Err(error @ NvmlError::FailedToLoadSymbol(_)) => match old_memory(device, library) {
            Some(memory) => Fact::Known(Memory {
                total: memory.total,
                used: memory.used,
                reserved: Fact::unavailable(reason_of(&error)),
            }),
            None => Fact::unavailable(reason_of(&error)),
        },
        Err(error) => Fact::unavailable(reason_of(&error)),
    }
}

/// The question of drivers before 510, which count what they keep for themselves as used.
#[expect(unsafe_code, reason = "the safe wrapper has no call for it")]
fn old_memory(device: &Device<'_>, library: &Path) -> Option<nvmlMemory_t> {
    // SAFETY: the library was loaded and initialized by the wrapper already; loading it again gives the same one, and
    // its initializers have run.
    let library = unsafe { NvmlLib::new(library) }.ok()?;
    let ask = library.nvmlDeviceGetMemoryInfo.as_ref().ok()?;
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the handle belongs to `device`, which outlives the call, and the structure is the one NVIDIA documents
    // for this function.
    let code = unsafe { ask(device.handle(), &raw mut memory) };
    (code == nvmlReturn_enum_NVML_SUCCESS).then_some(memory)
}

fn read_device(device: &Device<'_>, library: &Path) -> NvmlDevice {
    let memory = memory_of(device, library);
    NvmlDevice {
        name: fact(device.name()),
        uuid: fact(device.uuid()),
        compute_capability: fact(device.cuda_compute_capability()).and_then(|capability| {
            match (
                u32::try_from(capability.major),
                u32::try_from(capability.minor),
            ) {
                (Ok(major), Ok(minor)) => Fact::Known(ComputeCapability { major, minor }),
                _ => Fact::unavailable("the driver names no compute capability"),
            }
        }),
        total: memory.as_ref().map(|memory| Bytes(memory.total)),
        used: memory.as_ref().map(|memory| Bytes(memory.used)),
        reserved: memory.as_ref().and_then(|memory| memory.reserved.clone()),
        multiprocessors: Fact::unavailable("the driver does not say without a CUDA context"),
        ecc: fact(device.is_ecc_enabled()).map(|ecc| ecc.currently_enabled),
        processes: processes_of(device),
        mig: mig(device),
    }
}

fn processes_of(device: &Device<'_>) -> Fact<Vec<NvmlProcess>> {
    fact(running_processes(device)).map(|processes| {
        processes
            .into_iter()
            .map(|process| NvmlProcess {
                pid: process.pid,
                used: match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Fact::Known(Bytes(bytes)),
                    UsedGpuMemory::Unavailable => {
                        Fact::unavailable("the driver does not say it for this process")
                    }
                },
            })
            .collect()
    })
}

fn running_processes(device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    match device.running_compute_processes() {
        Err(NvmlError::FailedToLoadSymbol(_)) => device.running_compute_processes_v2(),
        answer => answer,
    }
}

fn mig(device: &Device<'_>) -> Fact<Option<Vec<NvmlMigInstance>>> {
    let mode = match device.mig_mode() {
        Ok(mode) => mode,
        // GPUs before Ampere, and consumer GPUs, have no such mode.
        Err(NvmlError::NotSupported) => return Fact::Known(None),
        Err(error) => return Fact::unavailable(reason_of(&error)),
    };
    if mode.current == 0 {
        return Fact::Known(None);
    }
    fact(device.mig_device_count()).map(|count| {
        Some(
            (0..count)
                .filter_map(|idx| device.mig_device_by_index(idx).ok())
                .map(|instance| {
                    let memory = fact(instance.memory_info());
                    NvmlMigInstance {
                        uuid: fact(instance.uuid()),
                        name: fact(instance.name()),
                        total: memory.as_ref().map(|memory| Bytes(memory.total)),
                        used: memory.as_ref().map(|memory| Bytes(memory.used)),
                    }
                })
                .collect(),
        )
    })
}
