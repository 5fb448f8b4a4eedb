//! A stand-in for `libnvidia-ml.so.1` with two devices: a T4, and a card that answers nothing.
//!
//! The T4's memory is that of a recorded one (`nvidia-smi -q` in a public log: total 15360, reserved 393, used 31 MiB).
//! The second device fails every question with "GPU is lost", as a card that fell off the bus does.

#![expect(
    unsafe_code,
    reason = "a C interface: the caller's pointers are written to, as the real library does"
)]

pub mod nvml_interface;

use std::ffi::{c_char, c_int, c_uint};

use nvml_interface::{
    ERROR_GPU_IS_LOST, ERROR_INSUFFICIENT_SIZE, ERROR_INVALID_ARGUMENT, ERROR_NOT_SUPPORTED,
    Handle, MIB, MemoryV2, NOT_AVAILABLE, ProcessInfo, SUCCESS, nvml, write_text,
};

/// Handles are numbers in place of pointers: 1 is the T4, 2 the lost card.
fn is_lost(device: Handle) -> bool {
    device as usize != 1
}

nvml! {
    fn nvmlInit_v2() { SUCCESS }
    fn nvmlShutdown() { SUCCESS }
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) { *count = 2; SUCCESS }
    fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) { write_text(text, length, "550.54.15") }
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) { *version = 12_040; SUCCESS }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) {
        if index > 1 {
            return ERROR_INVALID_ARGUMENT;
        }
        *device = (index as usize + 1) as Handle;
        SUCCESS
    }
    fn nvmlDeviceGetName(device: Handle, text: *mut c_char, length: c_uint) {
        if is_lost(device) { ERROR_GPU_IS_LOST } else { write_text(text, length, "Tesla T4") }
    }
    fn nvmlDeviceGetUUID(device: Handle, text: *mut c_char, length: c_uint) {
        if is_lost(device) {
            return ERROR_GPU_IS_LOST;
        }
        write_text(text, length, "GPU-5d8f1c2e-0a41-4f5b-9d53-bb0d2d0c8a01")
    }
    fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: *mut c_int, minor: *mut c_int) {
        if is_lost(device) {
            return ERROR_GPU_IS_LOST;
        }
        *major = 7;
        *minor = 5;
        SUCCESS
    }
    fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory: *mut MemoryV2) {
        if is_lost(device) {
            return ERROR_GPU_IS_LOST;
        }
        (*memory).total = 15_360 * MIB;
        (*memory).reserved = 393 * MIB;
        (*memory).used = 31 * MIB;
        (*memory).free = (15_360 - 393 - 31) * MIB;
        SUCCESS
    }
    fn nvmlDeviceGetEccMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) {
        if is_lost(device) {
            return ERROR_GPU_IS_LOST;
        }
        *current = 1;
        *pending = 1;
        SUCCESS
    }
    fn nvmlDeviceGetMigMode(device: Handle, _current: *mut c_uint, _pending: *mut c_uint) {
        if is_lost(device) { ERROR_GPU_IS_LOST } else { ERROR_NOT_SUPPORTED }
    }
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: *mut c_uint, processes: *mut ProcessInfo) {
        if is_lost(device) {
            return ERROR_GPU_IS_LOST;
        }
        if processes.is_null() || *count < 2 {
            *count = 2;
            return ERROR_INSUFFICIENT_SIZE;
        }
        for (at, (pid, used)) in [(4711, 100 * MIB), (79, NOT_AVAILABLE)].into_iter().enumerate() {
            *processes.add(at) = ProcessInfo {
                pid,
                used_gpu_memory: used,
                gpu_instance: c_uint::MAX,
                compute_instance: c_uint::MAX,
            };
        }
        *count = 2;
        SUCCESS
    }
}
