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

fn device(handle: usize) -> Option<&'static Device> {
    machine::machine()
        .devices
        .get(handle.wrapping_sub(HANDLE) / 16)
}

fn give(out: *mut usize, index: Option<usize>) -> c_int {
    match index {
        Some(index) if index < machine::machine().devices.len() => {
            put(out, HANDLE + 16 * index);
            SUCCESS
        }
        _ => NOT_FOUND,
    }
}

fn with(handle: usize, answer: impl FnOnce(&'static Device)) -> c_int {
    match device(handle) {
        Some(device) => {
            answer(device);
            SUCCESS
        }
        None => INVALID_ARGUMENT,
    }
}

/// Processes that hold memory of a device, as far as they say so (`shared`).
fn give_processes(handle: usize, count: *mut c_uint, out: *mut c_void) -> c_int {
    let Some(device) = device(handle) else {
        return INVALID_ARGUMENT;
    };
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
}

/// Writes `values` one after the other.
fn put_all(out: *mut c_void, from: usize, values: &[u64]) {
    if !out.is_null() {
        for (place, value) in values.iter().enumerate() {
            put(
                out.wrapping_byte_add(from + 8 * place).cast::<u64>(),
                *value,
            );
        }
    }
}

exports! {
    fn nvmlDeviceGetCount_v2(out: *mut c_uint) {
        put(out, c_uint::try_from(machine::machine().devices.len()).unwrap_or(0));
        SUCCESS
    }
    fn nvmlDeviceGetCount(out: *mut c_uint) { nvmlDeviceGetCount_v2(out) }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut usize) { give(out, usize::try_from(index).ok()) }
    fn nvmlDeviceGetHandleByIndex(index: c_uint, out: *mut usize) { give(out, usize::try_from(index).ok()) }
    fn nvmlDeviceGetHandleByPciBusId_v2(text: *const c_char, out: *mut usize) {
        give(out, machine::index_of_pci(&abi::text(text)))
    }
    fn nvmlDeviceGetHandleByUUID(text: *const c_char, out: *mut usize) {
        let text = abi::text(text);
        give(out, (0..machine::machine().devices.len()).find(|index| config::uuid_text(*index) == text))
    }
    fn nvmlDeviceGetIndex(handle: usize, out: *mut c_uint) {
        with(handle, |device| put(out, c_uint::try_from(device.index).unwrap_or(0)))
    }
    fn nvmlDeviceGetName(handle: usize, out: *mut c_char, length: c_uint) {
        with(handle, |device| put_text(out, length as usize, &device.spec.name))
    }
    fn nvmlDeviceGetUUID(handle: usize, out: *mut c_char, length: c_uint) {
        with(handle, |device| put_text(out, length as usize, &config::uuid_text(device.index)))
    }
    fn nvmlDeviceGetMemoryInfo(handle: usize, out: *mut c_void) {
        with(handle, |device| {
            put_all(out, 0, &device.shown_memory());
        })
    }
    // The second version begins with its number and has a field for what the driver keeps.
    fn nvmlDeviceGetMemoryInfo_v2(handle: usize, out: *mut c_void) {
        with(handle, |device| {
            let [total, free, used] = device.shown_memory();
            put_all(out, 8, &[total, 0, free, used]);
        })
    }
    fn nvmlDeviceGetCudaComputeCapability(handle: usize, major: *mut c_int, minor: *mut c_int) {
        with(handle, |device| {
            put(major, c_int::try_from(device.spec.cc.major).unwrap_or(0));
            put(minor, c_int::try_from(device.spec.cc.minor).unwrap_or(0));
        })
    }
    // Rates of use, temperature and power are honest: nothing runs.
    fn nvmlDeviceGetUtilizationRates(_handle: usize, out: *mut u64) { put(out, 0); SUCCESS }
    fn nvmlDeviceGetTemperature(_handle: usize, _sensor: c_int, out: *mut c_uint) { put(out, 0); SUCCESS }
    fn nvmlDeviceGetPowerUsage(_handle: usize, out: *mut c_uint) { put(out, 0); SUCCESS }
    fn nvmlDeviceGetClockInfo(_handle: usize, _kind: c_int, out: *mut c_uint) { put(out, 0); SUCCESS }
    fn nvmlDeviceGetComputeRunningProcesses(_handle: usize, count: *mut c_uint, _out: usize) { put(count, 0); SUCCESS }
    fn nvmlDeviceGetComputeRunningProcesses_v2(_handle: usize, count: *mut c_uint, _out: usize) { put(count, 0); SUCCESS }
    fn nvmlDeviceGetComputeRunningProcesses_v3(handle: usize, count: *mut c_uint, out: *mut c_void) {
        give_processes(handle, count, out)
    }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(_handle: usize, count: *mut c_uint, _out: usize) { put(count, 0); SUCCESS }
    // Expandable segments ask this unchecked; the structure stays zero, "no fabric".
    fn nvmlDeviceGetGpuFabricInfoV(_handle: usize, _out: usize) { SUCCESS }
    fn nvmlDeviceGetP2PStatus(_from: usize, _to: usize, _index: c_int, status: *mut c_int) { put(status, 0); SUCCESS }
    fn nvmlDeviceGetNvLinkRemoteDeviceType(_handle: usize, _link: c_uint, _out: usize) { NOT_SUPPORTED }
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(_handle: usize, _link: c_uint, _out: usize) { NOT_SUPPORTED }
    fn nvmlDeviceGetNvLinkState(_handle: usize, _link: c_uint, _out: usize) { NOT_SUPPORTED }
    fn nvmlSystemGetCudaDriverVersion(out: *mut c_int) { put(out, DRIVER_VERSION); SUCCESS }
    fn nvmlSystemGetCudaDriverVersion_v2(out: *mut c_int) { put(out, DRIVER_VERSION); SUCCESS }
    fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) {
        put_text(out, length as usize, "580.00");
        SUCCESS
    }
    fn nvmlSystemGetNVMLVersion(out: *mut c_char, length: c_uint) {
        put_text(out, length as usize, "13.580.00");
        SUCCESS
    }
    fn nvmlDeviceGetTotalEnergyConsumption(_handle: usize, out: *mut c_ulonglong) { put(out, 0); SUCCESS }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(_code: c_int) -> *const c_char {
    c"phantom NVML error".as_ptr()
}
