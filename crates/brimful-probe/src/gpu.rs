//! GPUs: NVIDIA's from the driver's own account, AMD's from the kernel's files.

use brimful::cards;
use brimful::env_vars;
use brimful::fact::{Fact, Gap};
use brimful::machine::{
    DeviceIdentity, DeviceOrder, Gpu, GpuProcess, GpuVendor, Gpus, MigInstance, Platform,
    TorchDevices, TorchMemory, TorchMemoryOrigin, Visibility, torch_devices,
};
use brimful::units::Bytes;

use crate::environment::Environment;
use crate::files::Files;
use crate::files::parse::counter;
use crate::nvml::{NvmlDevice, NvmlSnapshot};
use crate::processes::Processes;

pub(crate) fn read(
    files: &Files,
    env: &Environment,
    platform: &Platform,
    nvml: &Fact<NvmlSnapshot>,
) -> Gpus {
    let mut devices = Vec::new();
    let mut visible_devices_end_at = None;
    if let Fact::Known(snapshot) = nvml {
        let pids: Vec<u32> = (snapshot.devices.iter())
            .filter_map(|device| device.processes.known())
            .flatten()
            .map(|process| process.pid)
            .collect();
        let is_numbered_elsewhere =
            platform.is_container() && !Processes::of(files).are_numbered_as_here(&pids);
        let process_name = |pid: u32| {
            // In a container the driver may name processes of the host, which have other numbers here.
            if is_numbered_elsewhere {
                return Fact::unavailable(
                    "the host's processes cannot be seen from inside a container",
                );
            }
            process_name(files, pid)
        };
        let seen = seen_by_torch(env, &snapshot.devices);
        visible_devices_end_at = seen.stopped_at;
        devices.extend(nvidia(&snapshot.devices, seen.devices, &process_name));
    }
    let amd = amd(files, env);
    let has_amd = !amd.is_empty();
    devices.extend(amd);
    Gpus {
        complete: match nvml {
            // An AMD machine is not missing anything for having no NVIDIA driver.
            Fact::Missing(gap) if !has_amd => Fact::Missing(gap.clone()),
            _ => Fact::Known(()),
        },
        driver_version: nvml
            .as_ref()
            .and_then(|snapshot| snapshot.driver_version.clone()),
        driver_cuda: nvml
            .as_ref()
            .and_then(|snapshot| snapshot.cuda_version.clone()),
        visible_devices_variable: [
            env_vars::CUDA_VISIBLE_DEVICES,
            env_vars::HIP_VISIBLE_DEVICES,
            env_vars::ROCR_VISIBLE_DEVICES,
        ]
        .into_iter()
        .find_map(|name| Some((name.to_owned(), env.get(name)?.clone()))),
        visible_devices_end_at,
        devices,
    }
}

fn seen_by_torch(env: &Environment, devices: &[NvmlDevice]) -> TorchDevices {
    let identities: Vec<DeviceIdentity> = devices.iter().map(identity).collect();
    let order = match env.get(env_vars::CUDA_DEVICE_ORDER).map(String::as_str) {
        Some("PCI_BUS_ID") => DeviceOrder::PciBusId,
        _ => DeviceOrder::FastestFirst,
    };
    let visible = env.get(env_vars::CUDA_VISIBLE_DEVICES).map(String::as_str);
    torch_devices(&identities, visible, order)
}

fn nvidia(
    devices: &[NvmlDevice],
    seen: Vec<Visibility>,
    process_name: &dyn Fn(u32) -> Fact<String>,
) -> Vec<Gpu> {
    devices
        .iter()
        .zip(seen)
        .map(|(device, seen)| {
            let card = same_card(device);
            Gpu {
                vendor: GpuVendor::Nvidia,
                name: device.name.clone(),
                uuid: device.uuid.clone(),
                compute_capability: device.compute_capability.clone(),
                multiprocessors: match card {
                    Some(card) => Fact::Known(card.multiprocessors.value),
                    None => device.multiprocessors.clone(),
                },
                total: device.total.clone(),
                used: device.used.clone(),
                reserved: device.reserved.clone(),
                torch_memory: torch_memory(device, card),
                torch_index: seen.torch_index,
                processes: device.processes.as_ref().map(|processes| {
                    processes
                        .iter()
                        .map(|process| GpuProcess {
                            pid: process.pid,
                            name: process_name(process.pid),
                            used: process.used.clone(),
                        })
                        .collect()
                }),
                ecc: device.ecc.clone(),
                mig: device.mig.as_ref().map(|instances| {
                    instances.as_ref().map(|instances| {
                        instances
                            .iter()
                            .zip(&seen.mig)
                            .map(|(instance, torch_index)| MigInstance {
                                uuid: instance.uuid.clone(),
                                name: instance.name.clone(),
                                total: instance.total.clone(),
                                used: instance.used.clone(),
                                torch_index: torch_index.clone(),
                            })
                            .collect()
                    })
                }),
            }
        })
        .collect()
}

fn identity(device: &NvmlDevice) -> DeviceIdentity {
    let instances = device.mig.known().cloned().flatten();
    DeviceIdentity {
        name: device.name.known().cloned(),
        uuid: device.uuid.known().cloned(),
        mig_enabled: instances.is_some(),
        mig_uuids: instances
            .unwrap_or_default()
            .iter()
            .map(|instance| instance.uuid.known().cloned().unwrap_or_default())
            .collect(),
    }
}

/// The driver's total less its own share; with an old driver that keeps quiet about it, the catalogue.
fn torch_memory(device: &NvmlDevice, card: Option<&cards::Card>) -> Fact<TorchMemory> {
    if let (Fact::Known(total), Fact::Known(reserved)) = (&device.total, &device.reserved)
        && *reserved > Bytes::ZERO
    {
        return Fact::Known(TorchMemory {
            bytes: total.saturating_sub(*reserved),
            origin: TorchMemoryOrigin::Driver,
        });
    }
    match card {
        Some(card) => {
            let total = *device.total.known().unwrap_or(&card.total.value);
            let (bytes, how) = card.torch_visible_of(total);
            Fact::Known(TorchMemory {
                bytes,
                origin: TorchMemoryOrigin::Catalogue { how: how.name() },
            })
        }
        None => Fact::unavailable(
            "this driver does not say what it keeps for itself, and the card is not in the catalogue",
        ),
    }
}

/// The card of the catalogue that agrees in name and size; NVML gives no size of memory that is shared with the host.
fn same_card(device: &NvmlDevice) -> Option<&'static cards::Card> {
    cards::by_product(device.name.known()?, device.total.known().copied())
}

fn process_name(files: &Files, pid: u32) -> Fact<String> {
    files
        .text_up_to(&format!("/proc/{pid}/comm"), 64)
        .map(|text| text.trim().to_owned())
        .or_else(|| Fact::unavailable("no such process can be seen from here"))
}

/// Integrated graphics show 0.5 to 2 GiB of their own; no GPU for training has so little.
const LEAST_AMD_MEMORY: Bytes = Bytes::from_gib(4);

const KFD_NODES: &str = "/sys/class/kfd/kfd/topology/nodes";

/// AMD GPUs as the kernel's compute driver lists them, which is the order PyTorch numbers them in.
fn amd(files: &Files, env: &Environment) -> Vec<Gpu> {
    let Fact::Known(names) = files.names(KFD_NODES, 256) else {
        return Vec::new();
    };
    let mut nodes: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    nodes.sort_unstable();
    let visible = [
        env_vars::HIP_VISIBLE_DEVICES,
        env_vars::CUDA_VISIBLE_DEVICES,
        env_vars::ROCR_VISIBLE_DEVICES,
    ]
    .into_iter()
    .find_map(|name| env.get(name));
    // The processor's own graphics: a carve-out of main memory that nobody trains on, and that ROCm leaves out.
    let is_integrated = |gpu: &Gpu| {
        gpu.total
            .known()
            .is_some_and(|total| *total < LEAST_AMD_MEMORY)
    };
    let mut gpus: Vec<Gpu> = nodes
        .into_iter()
        .filter_map(|node| {
            let path = format!("{KFD_NODES}/{node}/properties");
            let properties = files.text(&path);
            let properties = properties.known()?;
            // Processors are nodes too, without vector units.
            (counter(properties, "simd_count")? > 0).then(|| amd_gpu(files, properties))
        })
        .filter(|gpu| !is_integrated(gpu))
        .collect();
    let identities: Vec<DeviceIdentity> = gpus
        .iter()
        .map(|gpu| DeviceIdentity {
            name: gpu.name.known().cloned(),
            uuid: None,
            mig_uuids: Vec::new(),
            mig_enabled: false,
        })
        .collect();
    let seen = torch_devices(
        &identities,
        visible.map(String::as_str),
        DeviceOrder::PciBusId,
    );
    for (gpu, seen) in gpus.iter_mut().zip(seen.devices) {
        gpu.torch_index = seen.torch_index;
    }
    gpus
}

fn amd_gpu(files: &Files, properties: &str) -> Gpu {
    let not_here = "AMD's kernel driver does not say";
    let device = counter(properties, "drm_render_minor")
        .map(|minor| format!("/sys/class/drm/renderD{minor}/device"));
    let bytes = |name: &str| match &device {
        Some(device) => files.number(&format!("{device}/{name}")).map(Bytes),
        None => Fact::Missing(Gap::FieldMissing {
            path: format!("{KFD_NODES}/*/properties"),
            field: "drm_render_minor".into(),
        }),
    };
    let product = device
        .as_ref()
        .and_then(|device| {
            files
                .text_up_to(&format!("{device}/product_name"), 256)
                .known()
                .cloned()
        })
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty());
    let target = counter(properties, "gfx_target_version").map(gfx_name);
    let total = bytes("mem_info_vram_total");
    Gpu {
        vendor: GpuVendor::Amd,
        name: match (product, target) {
            (Some(product), Some(target)) => Fact::Known(format!("{product} ({target})")),
            (Some(product), None) => Fact::Known(product),
            (None, Some(target)) => Fact::Known(format!("AMD {target}")),
            (None, None) => Fact::unavailable(not_here),
        },
        uuid: Fact::unavailable(not_here),
        compute_capability: Fact::unavailable("compute capability is NVIDIA's; AMD has none"),
        multiprocessors: match (
            counter(properties, "simd_count"),
            counter(properties, "simd_per_cu"),
        ) {
            (Some(simds), Some(per_cu)) if per_cu > 0 => u32::try_from(simds / per_cu)
                .map_or_else(|_| Fact::unavailable(not_here), Fact::Known),
            _ => Fact::unavailable(not_here),
        },
        used: bytes("mem_info_vram_used"),
        reserved: Fact::unavailable(not_here),
        // ROCm builds report all of the GPU's memory as the device's total.
        torch_memory: total.clone().map(|bytes| TorchMemory {
            bytes,
            origin: TorchMemoryOrigin::Driver,
        }),
        total,
        torch_index: Fact::Known(None),
        processes: Fact::unavailable(not_here),
        ecc: Fact::unavailable(not_here),
        mig: Fact::Known(None),
    }
}

/// 90402 is gfx942, 90010 is gfx90a: the last two digits are one hexadecimal step.
fn gfx_name(version: u64) -> String {
    let (major, minor, step) = (version / 10_000, version / 100 % 100, version % 100);
    format!("gfx{major}{minor:x}{step:x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_torch_memory(name: &str, total: Fact<Bytes>, expected: Option<(&str, &'static str)>) {
        let device = NvmlDevice {
            name: Fact::Known(name.into()),
            total,
            ..NvmlDevice::lost("an old driver")
        };
        let found = torch_memory(&device, same_card(&device));
        let found = found.known().map(|memory| match memory.origin {
            TorchMemoryOrigin::Catalogue { how } => (memory.bytes.to_string(), how),
            TorchMemoryOrigin::Driver => (memory.bytes.to_string(), "driver"),
        });
        let expected = expected.map(|(bytes, how)| (bytes.to_owned(), how));
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn the_catalogue_answers_for_a_card_of_the_same_size_only() {
        let mib = |mib| Fact::Known(Bytes::from_mib(mib));
        let rtx_4090 = "NVIDIA GeForce RTX 4090";
        check_torch_memory(rtx_4090, mib(24564), Some(("23.52 GiB", "measured")));
        // With ECC on: less than the driver's total, not the value of a GPU without.
        check_torch_memory(rtx_4090, mib(23028), Some(("22.02 GiB", "estimated")));
        check_torch_memory(rtx_4090, mib(49140), None);
        check_torch_memory("NVIDIA GeForce RTX 5060 Ti", mib(8151), None);
        check_torch_memory(
            "NVIDIA GB10",
            Fact::unavailable("not supported"),
            Some(("121.63 GiB", "measured")),
        );
    }

    #[test]
    fn amd_targets_are_named_as_amd_names_them() {
        assert_eq!(gfx_name(90_402), "gfx942");
        assert_eq!(gfx_name(90_010), "gfx90a");
        assert_eq!(gfx_name(110_501), "gfx1151");
    }
}
