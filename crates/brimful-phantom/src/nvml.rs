//! NVML: what PyTorch's allocator asks for, and what monitoring programs show.
//!
//! NVML counts every device, also those `CUDA_VISIBLE_DEVICES` hides.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::abi::{self, SUCCESS, exports, put, put_text};
use crate::config;
use crate::machine::{self, Device};
use crate::runtime::DRIVER_VERSION;
use crate::shared;

const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;

/// A handle is this plus sixteen times the device's place.
const HANDLE: usize = 0x4000;

/// Answers for the device behind a handle.
fn with(handle: usize, answer: impl FnOnce(&Device) -> c_int) -> c_int {
    let index = handle.wrapping_sub(HANDLE) / 16;
    machine::listed(|machine| machine.devices.get(index).map_or(INVALID_ARGUMENT, answer))
}

/// Gives the handle of the first device that is meant.
fn find(out: *mut usize, error: c_int, is_meant: impl Fn(&Device) -> bool) -> c_int {
    machine::listed(
        |machine| match machine.devices.iter().find(|device| is_meant(device)) {
            Some(device) => {
                put(out, HANDLE + 16 * device.index);
                SUCCESS
            }
            None => error,
        },
    )
}

fn by_index(out: *mut usize, index: c_uint) -> c_int {
    find(out, INVALID_ARGUMENT, |device| {
        device.index == index as usize
    })
}

fn by_pci(out: *mut usize, text: *const c_char) -> c_int {
    let index = machine::index_of_pci(&abi::text(text));
    find(out, NOT_FOUND, |device| Some(device.index) == index)
}

/// Gives a number that every device has.
fn give<T>(out: *mut T, value: T) -> c_int {
    put(out, value);
    SUCCESS
}

fn unsigned(value: usize) -> c_uint {
    c_uint::try_from(value).unwrap_or(c_uint::MAX)
}

/// Processes that hold memory of a device, as far as they say so (`shared`).
fn give_processes(handle: usize, count: *mut c_uint, out: *mut c_void) -> c_int {
    with(handle, |device| {
        let found = shared::others(device.index);
        let n_found = c_uint::try_from(found.len()).unwrap_or(0);
        // The number of structures that `out` has room for.
        let Some(room) = abi::get(count.cast_const()) else {
            return INVALID_ARGUMENT;
        };
        put(count, n_found);
        if room < n_found {
            return INSUFFICIENT_SIZE;
        }
        for (place, (pid, held)) in found.into_iter().enumerate() {
            // `nvmlProcessInfo_v2_t`: the process, its bytes, and no instances.
            put_all(out, 24 * place, &[u64::from(pid), held, u64::MAX]);
        }
        SUCCESS
    })
}

/// Writes `values` one after the other.
fn put_all<T: Copy>(out: *mut c_void, from: usize, values: &[T]) {
    if !out.is_null() {
        for (place, value) in values.iter().enumerate() {
            let at = from + size_of::<T>() * place;
            put(out.wrapping_byte_add(at).cast::<T>(), *value);
        }
    }
}

/// `nvmlPciInfo_t` since version 3 ends with the address in a longer form than the one at its beginning.
fn put_pci(out: *mut c_void, device: &Device, with_long_form: bool) -> c_int {
    /// Of the device's vendor; what product it is is not known.
    const NVIDIA: u32 = 0x10de;
    let short = machine::pci_address(device.index);
    put_text(out.cast(), 16, &short);
    // Domain, bus, device, product, subsystem.
    put_all(
        out,
        16,
        &[0, 0, unsigned(machine::pci_slot(device.index)), NVIDIA, 0],
    );
    if with_long_form && !out.is_null() {
        put_text(
            out.wrapping_byte_add(36).cast(),
            32,
            &format!("0000{short}"),
        );
    }
    SUCCESS
}

/// `nvmlClockType_t`: graphics, multiprocessors, memory, video.
fn max_clock(device: &Device, kind: c_int) -> Option<u32> {
    match kind {
        0 | 1 => Some(device.board.clock_khz / 1000),
        2 => Some(device.board.memory_clock_khz / 1000),
        _ => None,
    }
}

/// `nvmlDeviceArchitecture_t`.
fn architecture(device: &Device) -> u32 {
    match (device.spec.cc.major, device.spec.cc.minor) {
        (..=6, _) => 4,
        (7, ..=4) => 5,
        (7, _) => 6,
        (8, 9) => 8,
        (8, _) => 7,
        (9, _) => 9,
        _ => 10,
    }
}

exports! {
    fn nvmlDeviceGetCount_v2(out: *mut c_uint) {
        give(out, machine::listed(|machine| unsigned(machine.devices.len())))
    }
    fn nvmlDeviceGetCount(out: *mut c_uint) { nvmlDeviceGetCount_v2(out) }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut usize) { by_index(out, index) }
    fn nvmlDeviceGetHandleByIndex(index: c_uint, out: *mut usize) { by_index(out, index) }
    fn nvmlDeviceGetHandleByPciBusId_v2(text: *const c_char, out: *mut usize) { by_pci(out, text) }
    fn nvmlDeviceGetHandleByPciBusId(text: *const c_char, out: *mut usize) { by_pci(out, text) }
    fn nvmlDeviceGetHandleByUUID(text: *const c_char, out: *mut usize) {
        let text = abi::text(text);
        find(out, NOT_FOUND, |device| config::uuid_text(device.uuid) == text)
    }
    fn nvmlDeviceGetHandleBySerial(_text: *const c_char, _out: *mut usize) { NOT_FOUND }
    fn nvmlDeviceGetIndex(handle: usize, out: *mut c_uint) {
        with(handle, |device| give(out, unsigned(device.index)))
    }
    fn nvmlDeviceGetMinorNumber(handle: usize, out: *mut c_uint) { nvmlDeviceGetIndex(handle, out) }
    fn nvmlDeviceGetName(handle: usize, out: *mut c_char, length: c_uint) {
        with(handle, |device| {
            put_text(out, length as usize, &device.spec.name);
            SUCCESS
        })
    }
    fn nvmlDeviceGetUUID(handle: usize, out: *mut c_char, length: c_uint) {
        with(handle, |device| {
            put_text(out, length as usize, &config::uuid_text(device.uuid));
            SUCCESS
        })
    }
    fn nvmlDeviceGetPciInfo(handle: usize, out: *mut c_void) { with(handle, |device| put_pci(out, device, false)) }
    fn nvmlDeviceGetPciInfo_v2(handle: usize, out: *mut c_void) { with(handle, |device| put_pci(out, device, false)) }
    fn nvmlDeviceGetPciInfo_v3(handle: usize, out: *mut c_void) { with(handle, |device| put_pci(out, device, true)) }
    // Since driver 510, the first version counts what the driver keeps as used.
    fn nvmlDeviceGetMemoryInfo(handle: usize, out: *mut c_void) {
        with(handle, |device| {
            let [total, reserved, free, used] = device.managed_memory();
            put_all(out, 0, &[total, free, used + reserved]);
            SUCCESS
        })
    }
    // The second version begins with its number and has a field for what the driver keeps.
    fn nvmlDeviceGetMemoryInfo_v2(handle: usize, out: *mut c_void) {
        with(handle, |device| {
            put_all(out, 8, &device.managed_memory());
            SUCCESS
        })
    }
    fn nvmlDeviceGetMemoryBusWidth(handle: usize, out: *mut c_uint) {
        with(handle, |device| give(out, device.board.bus_width_bits))
    }
    fn nvmlDeviceGetCudaComputeCapability(handle: usize, major: *mut c_int, minor: *mut c_int) {
        with(handle, |device| {
            put(major, c_int::try_from(device.spec.cc.major).unwrap_or(0));
            give(minor, c_int::try_from(device.spec.cc.minor).unwrap_or(0))
        })
    }
    fn nvmlDeviceGetArchitecture(handle: usize, out: *mut c_uint) {
        with(handle, |device| give(out, architecture(device)))
    }
    fn nvmlDeviceGetMaxClockInfo(handle: usize, kind: c_int, out: *mut c_uint) {
        with(handle, |device| max_clock(device, kind).map_or(NOT_SUPPORTED, |clock| give(out, clock)))
    }
    // Rates of use, temperature and power are honest: nothing runs. Scripts log them, and stop at an error.
    fn nvmlDeviceGetUtilizationRates(_handle: usize, out: *mut u64) { give(out, 0) }
    fn nvmlDeviceGetEncoderUtilization(_handle: usize, out: *mut c_uint, period: *mut c_uint) {
        put(period, 0);
        give(out, 0)
    }
    fn nvmlDeviceGetDecoderUtilization(_handle: usize, out: *mut c_uint, period: *mut c_uint) {
        put(period, 0);
        give(out, 0)
    }
    fn nvmlDeviceGetTemperature(_handle: usize, _sensor: c_int, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceGetPowerUsage(_handle: usize, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceGetTotalEnergyConsumption(_handle: usize, out: *mut c_ulonglong) { give(out, 0) }
    fn nvmlDeviceGetClockInfo(_handle: usize, _kind: c_int, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceGetPcieThroughput(_handle: usize, _counter: c_int, out: *mut c_uint) { give(out, 0) }
    // In a rehearsal each process has a phantom of its own, which nobody else computes on.
    fn nvmlDeviceGetComputeRunningProcesses(_handle: usize, count: *mut c_uint, _out: usize) { give(count, 0) }
    fn nvmlDeviceGetComputeRunningProcesses_v2(_handle: usize, count: *mut c_uint, _out: usize) { give(count, 0) }
    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: usize, count: *mut c_uint, out: *mut c_void) {
        give_processes(handle, count, out)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses(_handle: usize, count: *mut c_uint, _out: usize) { give(count, 0) }
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(_handle: usize, count: *mut c_uint, _out: usize) { give(count, 0) }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(_handle: usize, count: *mut c_uint, _out: usize) { give(count, 0) }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(_handle: usize, count: *mut c_uint, _out: usize) { give(count, 0) }
    fn nvmlDeviceGetProcessUtilization(_handle: usize, _out: usize, count: *mut c_uint, _since: c_ulonglong) {
        put(count, 0);
        NOT_FOUND
    }
    // "No": modes of a display, of staying loaded, of exclusive use, of two GPUs on one board, of a part of a GPU.
    fn nvmlDeviceGetDisplayMode(_handle: usize, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceGetDisplayActive(_handle: usize, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceGetPersistenceMode(_handle: usize, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceGetComputeMode(_handle: usize, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceGetMultiGpuBoard(_handle: usize, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceIsMigDeviceHandle(_handle: usize, out: *mut c_uint) { give(out, 0) }
    fn nvmlDeviceGetMaxMigDeviceCount(_handle: usize, out: *mut c_uint) { give(out, 0) }
    // Expandable segments ask this unchecked; the structure stays zero, "no fabric".
    fn nvmlDeviceGetGpuFabricInfoV(_handle: usize, _out: usize) { SUCCESS }
    fn nvmlDeviceGetP2PStatus(_from: usize, _to: usize, _index: c_int, status: *mut c_int) { give(status, 0) }
    fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) { give(out, DRIVER_VERSION) }
    fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) { give(out, DRIVER_VERSION) }
    fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) {
        put_text(out, length as usize, "580.00");
        SUCCESS
    }
    fn nvmlSystemGetNVMLVersion(out: *mut c_char, length: c_uint) {
        put_text(out, length as usize, "13.580.00");
        SUCCESS
    }
    fn nvmlUnitGetCount(out: *mut c_uint) { give(out, 0) }
}

/// Defines entry points for what is not known of a phantom. Real GPUs of some kind have no answer to each of them
/// either, so that programs go on without; without the entry point, `pynvml` raises another exception.
macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            NOT_SUPPORTED
        }
    )*};
}

unsupported! {
    nvmlDeviceGetAccountingMode nvmlDeviceGetApplicationsClock nvmlDeviceGetAttributes nvmlDeviceGetAttributes_v2
    nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetBoardId nvmlDeviceGetBoardPartNumber nvmlDeviceGetBrand nvmlDeviceGetClock
    nvmlDeviceGetComputeInstanceId nvmlDeviceGetCpuAffinity nvmlDeviceGetCpuAffinityWithinScope
    nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetCurrentClocksEventReasons
    nvmlDeviceGetCurrentClocksThrottleReasons nvmlDeviceGetDefaultApplicationsClock nvmlDeviceGetDefaultEccMode
    nvmlDeviceGetDetailedEccErrors nvmlDeviceGetEccMode nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetFanSpeed
    nvmlDeviceGetFanSpeed_v2 nvmlDeviceGetFieldValues nvmlDeviceGetGpuInstanceId nvmlDeviceGetMaxCustomerBoostClock
    nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetMemoryAffinity
    nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetMigDeviceHandleByIndex nvmlDeviceGetMigMode nvmlDeviceGetNumFans
    nvmlDeviceGetNumGpuCores nvmlDeviceGetNvLinkRemoteDeviceType nvmlDeviceGetNvLinkRemotePciInfo_v2
    nvmlDeviceGetNvLinkState nvmlDeviceGetPcieReplayCounter nvmlDeviceGetPerformanceState
    nvmlDeviceGetPowerManagementDefaultLimit nvmlDeviceGetPowerManagementLimit
    nvmlDeviceGetPowerManagementLimitConstraints nvmlDeviceGetPowerManagementMode nvmlDeviceGetRemappedRows
    nvmlDeviceGetRetiredPages nvmlDeviceGetRetiredPages_v2 nvmlDeviceGetRetiredPagesPendingStatus nvmlDeviceGetSerial
    nvmlDeviceGetSupportedClocksEventReasons nvmlDeviceGetSupportedClocksThrottleReasons
    nvmlDeviceGetSupportedGraphicsClocks nvmlDeviceGetSupportedMemoryClocks nvmlDeviceGetTemperatureThreshold
    nvmlDeviceGetTopologyCommonAncestor nvmlDeviceGetTotalEccErrors nvmlDeviceGetVbiosVersion
    nvmlDeviceGetViolationStatus nvmlDeviceGetVirtualizationMode nvmlSystemGetProcessName
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: c_int) -> *const c_char {
    let text = match code {
        SUCCESS => c"The operation completed successfully",
        INVALID_ARGUMENT => c"Invalid Argument",
        NOT_SUPPORTED => c"Not Supported",
        NOT_FOUND => c"Not Found",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The T4 that there is without a description.
    fn t4() -> usize {
        let mut handle = 0;
        assert_eq!(nvmlDeviceGetHandleByIndex_v2(0, &raw mut handle), SUCCESS);
        handle
    }

    fn text(bytes: &[u8]) -> &str {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap();
        std::str::from_utf8(&bytes[..end]).unwrap()
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn the_pci_address_has_the_layout_of_each_version() {
        let mut info = [0xaa_u8; 68];
        assert_eq!(
            nvmlDeviceGetPciInfo_v2(t4(), info.as_mut_ptr().cast()),
            SUCCESS
        );
        assert_eq!(text(&info), "0000:00:04.0");
        assert_eq!((word(&info, 24), word(&info, 28)), (4, 0x10de));
        assert!(info[36..].iter().all(|byte| *byte == 0xaa));
        assert_eq!(
            nvmlDeviceGetPciInfo_v3(t4(), info.as_mut_ptr().cast()),
            SUCCESS
        );
        assert_eq!(text(&info[36..]), "00000000:00:04.0");
        assert_eq!(nvmlDeviceGetPciInfo_v3(t4(), std::ptr::null_mut()), SUCCESS);
    }

    #[test]
    fn a_device_is_found_by_each_of_its_names() {
        let mut found = 0;
        let uuid = format!("{}\0", config::uuid_text(config::uuid(0)));
        assert_eq!(
            nvmlDeviceGetHandleByUUID(uuid.as_ptr().cast(), &raw mut found),
            SUCCESS
        );
        assert_eq!(found, t4());
        for address in [c"00000000:00:04.0", c"0000:00:04.0"] {
            found = 0;
            assert_eq!(
                nvmlDeviceGetHandleByPciBusId_v2(address.as_ptr(), &raw mut found),
                SUCCESS
            );
            assert_eq!(found, t4());
        }
        let unknown = c"0000:00:05.0".as_ptr();
        assert_eq!(
            nvmlDeviceGetHandleByPciBusId_v2(unknown, &raw mut found),
            NOT_FOUND
        );
        assert_eq!(
            nvmlDeviceGetHandleByUUID(unknown, &raw mut found),
            NOT_FOUND
        );
        assert_eq!(
            nvmlDeviceGetHandleByIndex_v2(1, &raw mut found),
            INVALID_ARGUMENT
        );
        assert_eq!(
            nvmlDeviceGetIndex(7, std::ptr::null_mut()),
            INVALID_ARGUMENT
        );
    }

    #[test]
    fn both_versions_tell_the_same_memory() {
        let (mut first, mut second) = ([0_u64; 3], [0_u64; 5]);
        assert_eq!(
            nvmlDeviceGetMemoryInfo(t4(), first.as_mut_ptr().cast()),
            SUCCESS
        );
        assert_eq!(
            nvmlDeviceGetMemoryInfo_v2(t4(), second.as_mut_ptr().cast()),
            SUCCESS
        );
        let [_, total, reserved, free, used] = second;
        assert_eq!(first, [total, free, used + reserved]);
        assert_eq!(total, reserved + free + used);
    }

    #[test]
    fn clocks_are_those_of_the_board() {
        let mut clock = 0;
        assert_eq!(nvmlDeviceGetMaxClockInfo(t4(), 1, &raw mut clock), SUCCESS);
        assert_eq!(clock, 1590);
        assert_eq!(
            nvmlDeviceGetMaxClockInfo(t4(), 3, &raw mut clock),
            NOT_SUPPORTED
        );
    }
}
