//! The state of GPUs as a given management library reports it, for what answers in place of `nvidia-smi`.

use std::path::Path;

use brimful::machine::ComputeCapability;
use brimful::units::Bytes;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};

use crate::nvml::{cuda_version, reason_of};

/// What a management library says of the driver and of each GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriverStatus {
    pub driver_version: Option<String>,
    pub cuda_version: Option<(u32, u32)>,
    pub gpus: Vec<GpuStatus>,
}

/// One GPU; nothing where the library has no answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuStatus {
    pub name: Option<String>,
    pub uuid: Option<String>,
    /// Domain, bus, device and function, in hexadecimal digits: `00000000:00:04.0`.
    pub bus_id: Option<String>,
    pub minor_number: Option<u32>,
    pub compute_capability: Option<ComputeCapability>,
    pub memory: Option<MemoryStatus>,
    pub gpu_percent: Option<u32>,
    pub memory_percent: Option<u32>,
    pub encoder_percent: Option<u32>,
    pub decoder_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub power_milliwatts: Option<u32>,
    pub clocks: ClockStatus,
    pub max_clocks: ClockStatus,
}

/// A GPU's memory as NVML counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatus {
    pub total: Bytes,
    /// Kept by the driver for itself.
    pub reserved: Bytes,
    pub used: Bytes,
    pub free: Bytes,
}

/// Clocks in MHz.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockStatus {
    pub graphics: Option<u32>,
    pub sm: Option<u32>,
    pub memory: Option<u32>,
}

impl DriverStatus {
    /// Loads one given library and asks it; the error says why it does not answer.
    pub fn of_library(path: &Path) -> Result<DriverStatus, String> {
        let nvml = Nvml::builder().lib_path(path.as_os_str()).init();
        let nvml = nvml.map_err(|error| reason_of(&error))?;
        let count = nvml.device_count().map_err(|error| reason_of(&error))?;
        Ok(DriverStatus {
            driver_version: nvml.sys_driver_version().ok(),
            cuda_version: nvml.sys_cuda_driver_version().ok().and_then(cuda_version),
            gpus: (0..count.min(64))
                .map(|index| {
                    let device = nvml.device_by_index(index);
                    device.map_or_else(|_| GpuStatus::default(), |device| status(&device))
                })
                .collect(),
        })
    }
}

fn status(device: &Device<'_>) -> GpuStatus {
    let rates = device.utilization_rates().ok();
    GpuStatus {
        name: device.name().ok(),
        uuid: device.uuid().ok(),
        bus_id: device.pci_info().ok().map(|pci| pci.bus_id),
        minor_number: device.minor_number().ok(),
        compute_capability: device
            .cuda_compute_capability()
            .ok()
            .and_then(|capability| {
                Some(ComputeCapability {
                    major: u32::try_from(capability.major).ok()?,
                    minor: u32::try_from(capability.minor).ok()?,
                })
            }),
        memory: device.memory_info().ok().map(|memory| MemoryStatus {
            total: Bytes(memory.total),
            reserved: Bytes(memory.reserved),
            used: Bytes(memory.used),
            free: Bytes(memory.free),
        }),
        gpu_percent: rates.as_ref().map(|rates| rates.gpu),
        memory_percent: rates.map(|rates| rates.memory),
        encoder_percent: device.encoder_utilization().ok().map(|it| it.utilization),
        decoder_percent: device.decoder_utilization().ok().map(|it| it.utilization),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        power_milliwatts: device.power_usage().ok(),
        clocks: clocks(|kind| device.clock_info(kind).ok()),
        max_clocks: clocks(|kind| device.max_clock_info(kind).ok()),
    }
}

fn clocks(of: impl Fn(Clock) -> Option<u32>) -> ClockStatus {
    ClockStatus {
        graphics: of(Clock::Graphics),
        sm: of(Clock::SM),
        memory: of(Clock::Memory),
    }
}
