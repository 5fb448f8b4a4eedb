//! The CUDA driver: devices, contexts, memory, and how entry points are found by name.

use std::ffi::{CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use crate::abi::{
    self, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, RTLD_LAZY, RTLD_NOLOAD, SUCCESS, exports, lock,
    put, put_text,
};
use crate::machine;
use crate::memory;
use crate::names;
use crate::properties;
use crate::report;
use crate::runtime::{self, DRIVER_VERSION};
use crate::vmm;

/// A context is only its device: handles are this plus sixteen times the ordinal.
const CONTEXT: usize = 0x2000;

fn context_of(ordinal: c_int) -> usize {
    CONTEXT + 16 * usize::try_from(ordinal).unwrap_or(0)
}

fn enter(context: usize) -> c_int {
    if context == 0 {
        return SUCCESS;
    }
    match c_int::try_from(context.wrapping_sub(CONTEXT) / 16) {
        Ok(ordinal) => machine::set_current(ordinal),
        Err(_) => INVALID_VALUE,
    }
}

fn with_device(ordinal: c_int, answer: impl FnOnce(&'static machine::Device)) -> c_int {
    match machine::device(ordinal) {
        Some(device) => {
            answer(device);
            SUCCESS
        }
        None => machine::no_such_device(),
    }
}

exports! {
    fn cuInit(_flags: c_uint) { if machine::count() == 0 { abi::NO_DEVICE } else { SUCCESS } }
    fn cuDriverGetVersion(version: *mut c_int) { put(version, DRIVER_VERSION); SUCCESS }
    fn cuDeviceGetCount(count: *mut c_int) { put(count, machine::count()); SUCCESS }
    fn cuDeviceGet(out: *mut c_int, ordinal: c_int) { with_device(ordinal, |_| put(out, ordinal)) }
    fn cuDeviceGetName(out: *mut c_char, length: c_int, ordinal: c_int) {
        with_device(ordinal, |device| put_text(out, usize::try_from(length).unwrap_or(0), &device.spec.name))
    }
    fn cuDeviceTotalMem_v2(out: *mut usize, ordinal: c_int) {
        with_device(ordinal, |device| put(out, usize::try_from(device.spec.memory).unwrap_or(0)))
    }
    fn cuDeviceTotalMem(out: *mut usize, ordinal: c_int) { cuDeviceTotalMem_v2(out, ordinal) }
    fn cuDeviceGetAttribute(out: *mut c_int, number: c_int, ordinal: c_int) {
        with_device(ordinal, |device| put(out, properties::attribute(device, number)))
    }
    fn cuDeviceGetUuid(out: *mut [u8; 16], ordinal: c_int) {
        with_device(ordinal, |device| put(out, device.uuid))
    }
    fn cuDeviceGetUuid_v2(out: *mut [u8; 16], ordinal: c_int) { cuDeviceGetUuid(out, ordinal) }
    fn cuDeviceGetPCIBusId(out: *mut c_char, length: c_int, ordinal: c_int) {
        runtime::cudaDeviceGetPCIBusId(out, length, ordinal)
    }
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        runtime::cudaDeviceCanAccessPeer(can, device, peer)
    }
    fn cuDeviceGetP2PAttribute(value: *mut c_int) { put(value, 0); SUCCESS }
    fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, ordinal: c_int) {
        with_device(ordinal, |device| {
            put(major, properties::attribute(device, 75));
            put(minor, properties::attribute(device, 76));
        })
    }

    fn cuDevicePrimaryCtxGetState(ordinal: c_int, flags: *mut c_uint, active: *mut c_int) {
        with_device(ordinal, |device| {
            put(flags, 0);
            put(active, c_int::from(device.active.load(Ordering::Relaxed)));
        })
    }
    fn cuDevicePrimaryCtxRetain(out: *mut usize, ordinal: c_int) {
        with_device(ordinal, |device| {
            device.activate();
            put(out, context_of(ordinal));
        })
    }
    fn cuCtxCreate_v2(out: *mut usize, _flags: c_uint, ordinal: c_int) { create_context(out, ordinal) }
    fn cuCtxCreate(out: *mut usize, _flags: c_uint, ordinal: c_int) { create_context(out, ordinal) }
    fn cuCtxCreate_v3(out: *mut usize, _params: usize, _count: c_int, _flags: c_uint, ordinal: c_int) {
        create_context(out, ordinal)
    }
    fn cuCtxCreate_v4(out: *mut usize, _params: usize, _flags: c_uint, ordinal: c_int) { create_context(out, ordinal) }
    fn cuCtxGetCurrent(out: *mut usize) { put(out, context_of(machine::current_ordinal())); SUCCESS }
    fn cuCtxSetCurrent(context: usize) { enter(context) }
    fn cuCtxPushCurrent_v2(context: usize) { enter(context) }
    fn cuCtxPushCurrent(context: usize) { enter(context) }
    fn cuCtxPopCurrent_v2(out: *mut usize) { put(out, context_of(machine::current_ordinal())); SUCCESS }
    fn cuCtxPopCurrent(out: *mut usize) { put(out, context_of(machine::current_ordinal())); SUCCESS }
    fn cuCtxGetDevice(out: *mut c_int) { put(out, machine::current_ordinal()); SUCCESS }
    fn cuCtxGetDevice_v2(out: *mut c_int, context: usize) {
        put(out, c_int::try_from(context.wrapping_sub(CONTEXT) / 16).unwrap_or(0));
        SUCCESS
    }
    fn cuCtxGetApiVersion(_context: usize, out: *mut c_uint) { put(out, 3020); SUCCESS }
    fn cuCtxGetFlags(out: *mut c_uint) { put(out, 0); SUCCESS }
    fn cuCtxGetId(_context: usize, out: *mut c_ulonglong) { put(out, 1); SUCCESS }
    fn cuCtxGetLimit(out: *mut usize, _limit: c_int) { put(out, 8 << 20); SUCCESS }
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        put(least, 0);
        put(greatest, -5);
        SUCCESS
    }
    fn cuStreamGetCtx(_stream: usize, out: *mut usize) { put(out, context_of(machine::current_ordinal())); SUCCESS }

    fn cuMemAlloc_v2(out: *mut u64, bytes: usize) { runtime::allocate(out, bytes, false) }
    fn cuMemAlloc(out: *mut u64, bytes: usize) { runtime::allocate(out, bytes, false) }
    fn cuMemAllocAsync(out: *mut u64, bytes: usize, _stream: usize) { runtime::allocate(out, bytes, true) }
    fn cuMemAllocFromPoolAsync(out: *mut u64, bytes: usize, _pool: usize, _stream: usize) {
        runtime::allocate(out, bytes, true)
    }
    fn cuMemFree_v2(address: u64) { runtime::release(address) }
    fn cuMemFree(address: u64) { runtime::release(address) }
    fn cuMemFreeAsync(address: u64, _stream: usize) { runtime::release(address) }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) { runtime::free_and_total(free, total) }
    fn cuMemGetInfo(free: *mut usize, total: *mut usize) { runtime::free_and_total(free, total) }
    fn cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint) { runtime::cudaHostAlloc(out, bytes, flags) }
    fn cuMemAllocHost_v2(out: *mut *mut c_void, bytes: usize) { runtime::cudaHostAlloc(out, bytes, 0) }
    fn cuMemFreeHost(at: *mut c_void) { runtime::cudaFreeHost(at) }
    fn cuMemHostRegister_v2(at: *mut c_void, bytes: usize, flags: c_uint) { runtime::cudaHostRegister(at, bytes, flags) }
    fn cuMemHostUnregister(at: *mut c_void) { runtime::cudaHostUnregister(at) }
    fn cuMemHostGetDevicePointer_v2(out: *mut u64, at: u64, _flags: c_uint) { put(out, at); SUCCESS }
    fn cuMemcpy(to: u64, from: u64, bytes: usize) { runtime::copy(to, from, bytes); SUCCESS }
    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, _stream: usize) { runtime::copy(to, from, bytes); SUCCESS }
    fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) { runtime::copy(to, from, bytes); SUCCESS }
    fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) { runtime::copy(to, from, bytes); SUCCESS }
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) { runtime::copy(to, from, bytes); SUCCESS }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: usize) { runtime::copy(to, from, bytes); SUCCESS }
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, _stream: usize) { runtime::copy(to, from, bytes); SUCCESS }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, _stream: usize) { runtime::copy(to, from, bytes); SUCCESS }
    fn cuMemsetD8_v2(at: u64, value: u8, count: usize) { runtime::fill(at, c_int::from(value), count); SUCCESS }
    fn cuMemsetD8Async(at: u64, value: u8, count: usize, _stream: usize) {
        runtime::fill(at, c_int::from(value), count);
        SUCCESS
    }
    fn cuMemGetAddressRange_v2(start: *mut u64, bytes: *mut usize, address: u64) {
        let found = memory::device_of(address)
            .and_then(|index| machine::machine().devices.get(index))
            .and_then(|device| lock(&device.memory).range_of(address))
            .or_else(|| vmm::range_of(address));
        let Some((from, length)) = found else { return NOT_FOUND };
        put(start, from);
        put(bytes, usize::try_from(length).unwrap_or(0));
        SUCCESS
    }
    fn cuMemGetAddressRange(start: *mut u64, bytes: *mut usize, address: u64) {
        cuMemGetAddressRange_v2(start, bytes, address)
    }
    fn cuPointerGetAttribute(out: *mut c_void, attribute: c_int, address: u64) {
        pointer_attribute(out, attribute, address)
    }
    fn cuPointerGetAttributes(count: c_uint, attributes: *const c_int, outs: *const *mut c_void, address: u64) {
        let count = c_int::try_from(count).unwrap_or(0);
        for (attribute, out) in abi::list(attributes, count).into_iter().zip(abi::list(outs, count)) {
            pointer_attribute(out, attribute, address);
        }
        SUCCESS
    }

    fn cuGetErrorString(code: c_int, out: *mut *const c_char) { put(out, runtime::error_row(code).1.as_ptr()); SUCCESS }
    fn cuGetErrorName(code: c_int, out: *mut *const c_char) { put(out, runtime::error_row(code).0.as_ptr()); SUCCESS }
    // NVIDIA's private door. Its libraries look behind it for a driver of their own; we do not play one.
    fn cuGetExportTable(out: *mut *const c_void, _id: usize) { put(out, std::ptr::null()); NOT_FOUND }
    // Parts of a device for one program each: the callers are optional features.
    fn cuDeviceGetDevResource(_device: c_int, _out: usize, _kind: c_int) { NOT_SUPPORTED }
    fn cuGreenCtxCreate(_out: usize) { NOT_SUPPORTED }

    fn cuGetProcAddress(name: *const c_char, out: *mut *const c_void, version: c_int, _flags: c_ulonglong) {
        put(out, entry_point(&abi::text(name), version));
        SUCCESS
    }
    fn cuGetProcAddress_v2(
        name: *const c_char, out: *mut *const c_void, version: c_int, _flags: c_ulonglong, status: *mut c_int,
    ) {
        put(out, entry_point(&abi::text(name), version));
        put(status, 0);
        SUCCESS
    }
    fn cudaGetDriverEntryPoint(name: *const c_char, out: *mut *const c_void, _flags: c_ulonglong, status: *mut c_int) {
        put(out, entry_point(&abi::text(name), DRIVER_VERSION));
        put(status, 0);
        SUCCESS
    }
    fn cudaGetDriverEntryPointByVersion(
        name: *const c_char, out: *mut *const c_void, version: c_uint, _flags: c_ulonglong, status: *mut c_int,
    ) {
        put(out, entry_point(&abi::text(name), c_int::try_from(version).unwrap_or(DRIVER_VERSION)));
        put(status, 0);
        SUCCESS
    }
}

fn create_context(out: *mut usize, ordinal: c_int) -> c_int {
    let code = machine::set_current(ordinal);
    put(out, context_of(ordinal));
    code
}

/// `CUpointer_attribute`.
fn pointer_attribute(out: *mut c_void, attribute: c_int, address: u64) -> c_int {
    let (kind, ordinal) = runtime::kind_of(address);
    if kind == 0 {
        // The driver, unlike the runtime, does not know memory nobody registered.
        abi::zero(out, if matches!(attribute, 2 | 9) { 4 } else { 0 });
        return INVALID_VALUE;
    }
    let mut start = address;
    let mut bytes = 0_usize;
    let found = cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, address) == SUCCESS;
    match attribute {
        1 => put(out.cast::<usize>(), context_of(ordinal)),
        // `CU_MEMORYTYPE_HOST` is 1 and `…_DEVICE` is 2; managed memory counts as the device's.
        2 => put(out.cast::<c_uint>(), if kind == 1 { 1 } else { 2 }),
        3 | 4 => put(out.cast::<u64>(), address),
        6 | 10 | 15 | 21 => put(out.cast::<u8>(), 0),
        // The first byte's address also serves as the number of the buffer and of the block.
        7 | 11 | 19 | 20 => put(out.cast::<u64>(), start),
        8 => put(out.cast::<u8>(), u8::from(kind == 3)),
        9 => put(out.cast::<c_int>(), ordinal),
        12 | 18 => put(out.cast::<usize>(), bytes),
        13 => put(out.cast::<u8>(), u8::from(found)),
        14 => put(out.cast::<u64>(), 0),
        16 => put(out.cast::<u64>(), 3),
        17 => put(out.cast::<usize>(), 0),
        _ => return INVALID_VALUE,
    }
    SUCCESS
}

/// Names whose arguments changed, with the driver version since which the newer symbol is meant.
const NEWER: &[(&str, c_int, &str)] = &[
    ("cuGetProcAddress", 12_000, "cuGetProcAddress_v2"),
    (
        "cuStreamGetCaptureInfo",
        12_030,
        "cuStreamGetCaptureInfo_v3",
    ),
    (
        "cuStreamGetCaptureInfo",
        11_030,
        "cuStreamGetCaptureInfo_v2",
    ),
    ("cuCtxCreate", 12_050, "cuCtxCreate_v4"),
    ("cuCtxCreate", 11_040, "cuCtxCreate_v3"),
    ("cuCtxGetDevice", 13_000, "cuCtxGetDevice_v2"),
    ("cuLinkCreate", 6_050, "cuLinkCreate_v2"),
    ("cuLinkAddData", 6_050, "cuLinkAddData_v2"),
    ("cuMemcpyHtoD", 3_020, "cuMemcpyHtoD_v2"),
    ("cuMemcpyDtoH", 3_020, "cuMemcpyDtoH_v2"),
    ("cuMemcpyDtoD", 3_020, "cuMemcpyDtoD_v2"),
    ("cuMemcpyHtoDAsync", 3_020, "cuMemcpyHtoDAsync_v2"),
    ("cuMemcpyDtoHAsync", 3_020, "cuMemcpyDtoHAsync_v2"),
    ("cuMemcpyDtoDAsync", 3_020, "cuMemcpyDtoDAsync_v2"),
    ("cuMemsetD8", 3_020, "cuMemsetD8_v2"),
    ("cuMemAllocHost", 3_020, "cuMemAllocHost_v2"),
    ("cuMemHostRegister", 6_050, "cuMemHostRegister_v2"),
    (
        "cuMemHostGetDevicePointer",
        3_020,
        "cuMemHostGetDevicePointer_v2",
    ),
];

/// The symbol a name stands for at a driver version.
fn symbol_for(name: &str, version: c_int) -> &str {
    NEWER
        .iter()
        .find(|(old, since, _)| *old == name && version >= *since)
        .map_or(name, |(_, _, new)| new)
}

/// One of our own exports, or a function that succeeds and does nothing; the name of the latter is noted.
fn entry_point(name: &str, version: c_int) -> *const c_void {
    let found = own_symbol(symbol_for(name, version));
    if found.is_null() {
        report::unknown(name);
        return nothing as *const c_void;
    }
    found
}

extern "C" fn nothing() -> usize {
    0
}

fn own_symbol(name: &str) -> *const c_void {
    static SELF: OnceLock<usize> = OnceLock::new();
    let library = *SELF.get_or_init(|| {
        let Some(file) =
            names::own_file().and_then(|file| CString::new(file.as_os_str().as_bytes()).ok())
        else {
            return 0;
        };
        // SAFETY: asks for a handle of a file that is loaded already.
        unsafe { abi::dlopen(file.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) as usize }
    });
    let Ok(name) = CString::new(name) else {
        return std::ptr::null();
    };
    if library == 0 || name.is_empty() {
        return std::ptr::null();
    }
    // SAFETY: a handle from `dlopen` that is never closed.
    unsafe { abi::dlsym(library as *mut c_void, name.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_what_it_meant_at_the_version_asked_for() {
        assert_eq!(symbol_for("cuGetProcAddress", 11_080), "cuGetProcAddress");
        assert_eq!(
            symbol_for("cuGetProcAddress", 12_000),
            "cuGetProcAddress_v2"
        );
        assert_eq!(
            symbol_for("cuStreamGetCaptureInfo", 12_000),
            "cuStreamGetCaptureInfo_v2"
        );
        assert_eq!(
            symbol_for("cuStreamGetCaptureInfo", 13_000),
            "cuStreamGetCaptureInfo_v3"
        );
        assert_eq!(symbol_for("cuMemMap", 13_000), "cuMemMap");
    }
}
