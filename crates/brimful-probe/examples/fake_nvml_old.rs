//! A stand-in for the library of a driver before 510: one card, and none of the newer questions.
//!
//! Such a driver counts what it keeps for itself as used, and calls a T4's total 15109 MiB.

#![expect(
    unsafe_code,
    reason = "a C interface: the caller's pointers are written to, as the real library does"
)]

pub mod nvml_interface;

use std::ffi::{c_char, c_int, c_uint};

use nvml_interface::{
    ERROR_GPU_IS_LOST, ERROR_INSUFFICIENT_SIZE, Handle, MIB, MemoryV1, NOT_AVAILABLE, ProcessInfo,
    SUCCESS, nvml, write_text,
};

nvml! {
    fn nvmlInit_v2() { SUCCESS }
    fn nvmlShutdown() { SUCCESS }
    fn nvmlDeviceGetCount_v2(count: *mut c_uint) { *count = 2; SUCCESS }
    fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint) { write_text(text, length, "470.82.01") }
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) { *version = 11_040; SUCCESS }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) {
        // The first card fell off the bus: not even a handle is to be had.
        if index == 0 {
            return ERROR_GPU_IS_LOST;
        }
        *device = 1 as Handle;
        SUCCESS
    }
    fn nvmlDeviceGetName(_device: Handle, text: *mut c_char, length: c_uint) {
        write_text(text, length, "Tesla T4")
    }
    fn nvmlDeviceGetMemoryInfo(_device: Handle, memory: *mut MemoryV1) {
        *memory = MemoryV1 { total: 15_109 * MIB, free: 15_106 * MIB, used: 3 * MIB };
        SUCCESS
    }
    fn nvmlDeviceGetComputeRunningProcesses_v2(_device: Handle, count: *mut c_uint, processes: *mut ProcessInfo) {
        if processes.is_null() || *count < 1 {
            *count = 1;
            return ERROR_INSUFFICIENT_SIZE;
        }
        *processes = ProcessInfo {
            pid: 4711,
            used_gpu_memory: NOT_AVAILABLE,
            gpu_instance: c_uint::MAX,
            compute_instance: c_uint::MAX,
        };
        *count = 1;
        SUCCESS
    }
}
