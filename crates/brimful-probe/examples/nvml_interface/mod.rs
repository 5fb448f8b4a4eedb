//! The parts of NVIDIA's management interface that the stand-ins share: codes, structures, and how to export.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

pub const SUCCESS: c_uint = 0;
pub const ERROR_INVALID_ARGUMENT: c_uint = 2;
pub const ERROR_NOT_SUPPORTED: c_uint = 3;
pub const ERROR_INSUFFICIENT_SIZE: c_uint = 7;
pub const ERROR_GPU_IS_LOST: c_uint = 15;
pub const MIB: c_ulonglong = 1 << 20;
/// NVML's mark for "not available", which a careless reader shows as 16 million TiB.
pub const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;

pub type Handle = *mut c_void;

#[repr(C)]
#[derive(Debug)]
pub struct MemoryV2 {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

#[repr(C)]
#[derive(Debug)]
pub struct MemoryV1 {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

#[repr(C)]
#[derive(Debug)]
pub struct ProcessInfo {
    pub pid: c_uint,
    pub used_gpu_memory: c_ulonglong,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

/// # Safety
/// `target` must be writable for `length` bytes.
pub unsafe fn write_text(target: *mut c_char, length: c_uint, text: &str) -> c_uint {
    if text.len() >= length as usize {
        return ERROR_INSUFFICIENT_SIZE;
    }
    // SAFETY: the text and its final zero fit, checked above; the caller vouches for the rest.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), target, text.len());
        *target.add(text.len()) = 0;
    }
    SUCCESS
}

macro_rules! nvml {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) $body:block)*) => {
        $(
            /// # Safety
            /// As NVIDIA documents for the function of this name: pointers are valid for what they stand for.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_uint {
                // SAFETY: passed on to the caller by the function's own contract.
                #[allow(unused_unsafe, clippy::allow_attributes, reason = "some answers write nothing")]
                unsafe { $body }
            }
        )*
    };
}

pub(crate) use nvml;
