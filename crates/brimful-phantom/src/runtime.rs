//! The CUDA runtime: errors, devices, memory, copies.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{
    self, INVALID_VALUE, NO_DEVICE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, exports, lock, put,
    put_text,
};
use crate::generation;
use crate::launches;
use crate::machine;
use crate::memory;
use crate::mirror;
use crate::properties::{self, Layout};
use crate::report;
use crate::vmm;
use crate::watched;

/// The driver this pretends to be: new enough for both generations.
pub(crate) const DRIVER_VERSION: c_int = 13_000;

/// Whether the program has called this library's `cudaGetErrorString`.
static IS_ASKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
}

/// Remembers a failure for `cudaGetLastError`, and passes the code on.
pub(crate) fn error(code: c_int) -> c_int {
    if code != SUCCESS {
        LAST_ERROR.set(code);
    }
    code
}

/// Memory of the host that CUDA knows: where it begins, how long it is, and whose it is.
#[derive(Debug, Clone, Copy)]
struct HostBlock {
    bytes: usize,
    kind: HostKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostKind {
    /// From `cudaHostAlloc`: ours to free.
    Allocated,
    /// From `cudaMallocManaged`: the same, but CUDA calls it managed.
    Managed,
    /// From `cudaHostRegister`: the program's.
    Registered,
}

static HOST: Mutex<BTreeMap<usize, HostBlock>> = Mutex::new(BTreeMap::new());

/// `cudaMemoryType`.
const UNREGISTERED: c_int = 0;
const PINNED: c_int = 1;
const DEVICE: c_int = 2;
const MANAGED: c_int = 3;

/// What CUDA knows about an address: its type, and the ordinal of its device or -2.
pub(crate) fn kind_of(address: u64) -> (c_int, c_int) {
    if memory::is_device(address) {
        let index = memory::device_of(address)
            .or_else(|| vmm::device_of(address))
            .unwrap_or(0);
        return (DEVICE, machine::ordinal_of(index).unwrap_or(0));
    }
    let Ok(address) = usize::try_from(address) else {
        return (UNREGISTERED, -2);
    };
    let host = lock(&HOST);
    match host.range(..=address).next_back() {
        Some((start, block)) if address - start < block.bytes.max(1) => {
            let kind = if block.kind == HostKind::Managed {
                MANAGED
            } else {
                PINNED
            };
            (kind, machine::current_ordinal())
        }
        _ => (UNREGISTERED, -2),
    }
}

fn host_allocate(out: *mut *mut c_void, bytes: usize, kind: HostKind) -> c_int {
    let mut block = std::ptr::null_mut();
    // SAFETY: plain allocation of at least one byte on page boundaries.
    let failed = unsafe { abi::posix_memalign(&raw mut block, 4096, bytes.max(1)) };
    if failed != 0 {
        put(out, std::ptr::null_mut());
        return error(OUT_OF_MEMORY);
    }
    let mut host = lock(&HOST);
    host.insert(block as usize, HostBlock { bytes, kind });
    if kind == HostKind::Managed {
        let managed = host
            .values()
            .filter(|block| block.kind == HostKind::Managed);
        let bytes: usize = managed.map(|block| block.bytes).sum();
        report::MANAGED_BYTES.fetch_max(bytes as u64, Ordering::Relaxed);
    }
    put(out, block);
    SUCCESS
}

fn host_free(at: *mut c_void) -> c_int {
    if at.is_null() {
        return SUCCESS;
    }
    let mut host = lock(&HOST);
    match host.get(&(at as usize)) {
        Some(block) if block.kind != HostKind::Registered => {
            host.remove(&(at as usize));
            // SAFETY: the table says that `host_allocate` made it and nobody freed it since.
            unsafe { abi::free(at) };
            SUCCESS
        }
        _ => error(INVALID_VALUE),
    }
}

/// Copies what can be copied: host to host. From a device come zeros; to a device goes nothing.
pub(crate) fn copy(to: u64, from: u64, bytes: usize) {
    if bytes == 0 {
        return;
    }
    let (to_device, from_device) = (memory::is_device(to), memory::is_device(from));
    if to_device {
        launches::written();
    }
    let target = to as *mut c_void;
    match (to_device, from_device) {
        (true, true) => mirror::copied(to, from, bytes),
        (true, false) => mirror::sent(to, from, bytes),
        (false, true) => {
            report::READ_BACKS.fetch_add(1, Ordering::Relaxed);
            report::READ_BACK_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
            abi::zero(target, bytes);
            mirror::read(to, from, bytes);
        }
        (false, false) => {
            // SAFETY: both are the program's own memory, as the contract of the copy functions demands.
            unsafe { abi::memcpy(target, from as *const c_void, bytes) };
        }
    }
}

pub(crate) fn fill(at: u64, value: c_int, bytes: usize) {
    if memory::is_device(at) {
        launches::written();
        mirror::forget(at, bytes);
    } else if at != 0 {
        let byte = value.to_le_bytes()[0];
        // SAFETY: memory of the host given to a memset function, writable by that function's contract.
        unsafe { (at as *mut u8).write_bytes(byte, bytes) };
    }
}

pub(crate) fn allocate(out: *mut u64, bytes: usize, from_pool: bool) -> c_int {
    let Some(device) = machine::current() else {
        return error(machine::no_such_device());
    };
    watched::check();
    let mut space = lock(&device.memory);
    let bytes = bytes as u64;
    let found = if from_pool {
        space.allocate_from_pool(bytes)
    } else {
        space.allocate(bytes)
    };
    device.note_use(&space);
    put(out, found.unwrap_or(0));
    if found.is_some() {
        SUCCESS
    } else {
        error(OUT_OF_MEMORY)
    }
}

pub(crate) fn release(address: u64) -> c_int {
    if address == 0 {
        return SUCCESS;
    }
    if !memory::is_device(address) {
        return host_free(address as *mut c_void);
    }
    let released = memory::device_of(address)
        .and_then(|index| machine::machine().devices.get(index))
        .and_then(|device| {
            let mut space = lock(&device.memory);
            let released = space.release(address);
            device.note_use(&space);
            released
        });
    if released.is_some() {
        SUCCESS
    } else {
        error(INVALID_VALUE)
    }
}

fn properties(out: *mut c_void, ordinal: c_int, layout: Layout) -> c_int {
    match machine::device(ordinal) {
        Some(device) => {
            properties::fill(out, device, layout);
            SUCCESS
        }
        None => error(machine::no_such_device()),
    }
}

pub(crate) fn free_and_total(free: *mut usize, total: *mut usize) -> c_int {
    let Some(device) = machine::current() else {
        return error(machine::no_such_device());
    };
    let [all, unused, _] = device.shown_memory();
    put(free, usize::try_from(unused).unwrap_or(0));
    put(total, usize::try_from(all).unwrap_or(0));
    SUCCESS
}

/// The pool of a device; only its address matters.
const POOL_HANDLE: usize = 0x800;

fn pool_attribute(pool: usize, attribute: c_int, out: *mut c_void) -> c_int {
    let index = pool.wrapping_sub(POOL_HANDLE) / 8;
    let Some(device) = machine::machine().devices.get(index) else {
        return error(INVALID_VALUE);
    };
    let (used, peak) = lock(&device.memory).pool();
    let whole = |bytes: u64| memory::round_up(bytes, memory::PAGE).unwrap_or(bytes);
    match attribute {
        1..=3 => put(out.cast::<c_int>(), 1), // the three ways to reuse memory
        4 => put(out.cast::<u64>(), u64::MAX), // release threshold
        5 => put(out.cast::<u64>(), whole(used)),
        6 => put(out.cast::<u64>(), whole(peak)),
        7 => put(out.cast::<u64>(), used),
        8 => put(out.cast::<u64>(), peak),
        _ => return error(INVALID_VALUE),
    }
    SUCCESS
}

exports! {
    fn cudaGetLastError() { LAST_ERROR.replace(SUCCESS) }
    fn cudaPeekAtLastError() { LAST_ERROR.get() }

    fn cudaGetDeviceCount(count: *mut c_int) {
        put(count, machine::count());
        if machine::count() == 0 { error(NO_DEVICE) } else { SUCCESS }
    }
    fn cudaGetDevice(device: *mut c_int) {
        put(device, machine::current_ordinal());
        if machine::count() == 0 { error(NO_DEVICE) } else { SUCCESS }
    }
    fn cudaSetDevice(device: c_int) { error(machine::set_current(device)) }
    fn cudaInitDevice(device: c_int, _flags: c_uint, _wanted: c_uint) { error(machine::set_current(device)) }
    fn cudaDriverGetVersion(version: *mut c_int) { put(version, DRIVER_VERSION); SUCCESS }
    /// Gives 1 if this is the CUDA runtime of this process, as `cudaGetErrorString` was called here, and has devices.
    ///
    /// That fixes nothing yet: the program may still choose its devices with `CUDA_VISIBLE_DEVICES`.
    fn brimful_phantom_is_the_runtime() {
        let has_devices = machine::listed(|machine| !machine.devices.is_empty());
        c_int::from(has_devices && IS_ASKED.load(Ordering::Relaxed))
    }
    fn cudaRuntimeGetVersion(version: *mut c_int) { put(version, generation::runtime_version()); SUCCESS }
    fn cudaGetDeviceProperties(out: *mut c_void, device: c_int) { properties(out, device, Layout::Cuda13) }
    fn cudaGetDeviceProperties_v2(out: *mut c_void, device: c_int) { properties(out, device, Layout::Cuda12) }
    fn cudaDeviceGetAttribute(value: *mut c_int, number: c_int, device: c_int) {
        match machine::device(device) {
            Some(device) => {
                put(value, properties::attribute(device, number));
                SUCCESS
            }
            None => error(machine::no_such_device()),
        }
    }
    fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) {
        put(can, 0);
        if machine::device(device).is_none() || machine::device(peer).is_none() {
            return error(machine::no_such_device());
        }
        put(can, c_int::from(device != peer));
        SUCCESS
    }
    fn cudaDeviceGetP2PAttribute(value: *mut c_int, _attribute: c_int, _from: c_int, _to: c_int) {
        put(value, 0);
        SUCCESS
    }
    fn cudaDeviceGetPCIBusId(out: *mut c_char, length: c_int, device: c_int) {
        match machine::device(device) {
            Some(device) => {
                put_text(out, usize::try_from(length).unwrap_or(0), &machine::pci_address(device.index));
                SUCCESS
            }
            None => error(machine::no_such_device()),
        }
    }
    fn cudaDeviceGetByPCIBusId(out: *mut c_int, text: *const c_char) {
        match machine::index_of_pci(&abi::text(text)).and_then(machine::ordinal_of) {
            Some(ordinal) => {
                put(out, ordinal);
                SUCCESS
            }
            None => error(INVALID_VALUE),
        }
    }
    fn cudaDeviceGetLimit(value: *mut usize, _limit: c_int) { put(value, 8 << 20); SUCCESS }
    fn cudaGetDeviceFlags(flags: *mut c_uint) { put(flags, 0); SUCCESS }

    fn cudaMalloc(out: *mut u64, bytes: usize) { allocate(out, bytes, false) }
    fn cudaFree(address: u64) { release(address) }
    fn cudaMallocAsync(out: *mut u64, bytes: usize, _stream: usize) { allocate(out, bytes, true) }
    fn cudaMallocFromPoolAsync(out: *mut u64, bytes: usize, _pool: usize, _stream: usize) { allocate(out, bytes, true) }
    fn cudaFreeAsync(address: u64, _stream: usize) { release(address) }
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) { free_and_total(free, total) }
    fn cudaMallocPitch(out: *mut u64, pitch: *mut usize, width: usize, height: usize) {
        let row = width.next_multiple_of(512);
        put(pitch, row);
        allocate(out, row.saturating_mul(height), false)
    }

    fn cudaHostAlloc(out: *mut *mut c_void, bytes: usize, _flags: c_uint) { host_allocate(out, bytes, HostKind::Allocated) }
    fn cudaMallocHost(out: *mut *mut c_void, bytes: usize) { host_allocate(out, bytes, HostKind::Allocated) }
    fn cudaMallocManaged(out: *mut *mut c_void, bytes: usize, _flags: c_uint) { host_allocate(out, bytes, HostKind::Managed) }
    fn cudaFreeHost(at: *mut c_void) { host_free(at) }
    fn cudaHostRegister(at: *mut c_void, bytes: usize, _flags: c_uint) {
        lock(&HOST).insert(at as usize, HostBlock { bytes, kind: HostKind::Registered });
        SUCCESS
    }
    fn cudaHostUnregister(at: *mut c_void) {
        if lock(&HOST).remove(&(at as usize)).is_some() { SUCCESS } else { error(INVALID_VALUE) }
    }
    fn cudaHostGetDevicePointer(out: *mut *mut c_void, at: *mut c_void, _flags: c_uint) { put(out, at); SUCCESS }
    fn cudaHostGetFlags(flags: *mut c_uint, _at: *mut c_void) { put(flags, 0); SUCCESS }

    fn cudaPointerGetAttributes(out: *mut c_void, address: u64) {
        if out.is_null() {
            return error(INVALID_VALUE);
        }
        // `struct cudaPointerAttributes`: type, device, devicePointer, hostPointer. CUDA 13 added reserved
        // fields, which its callers do not read and CUDA 12's structure has no room for.
        let (kind, device) = kind_of(address);
        put(out.cast::<c_int>(), kind);
        put(out.wrapping_byte_add(4).cast::<c_int>(), device);
        put(out.wrapping_byte_add(8).cast::<u64>(), if kind == UNREGISTERED { 0 } else { address });
        put(out.wrapping_byte_add(16).cast::<u64>(), if kind == DEVICE { 0 } else { address });
        SUCCESS
    }

    fn cudaMemcpy(to: u64, from: u64, bytes: usize, _kind: c_int) { copy(to, from, bytes); SUCCESS }
    fn cudaMemcpyAsync(to: u64, from: u64, bytes: usize, _kind: c_int, _stream: usize) { copy(to, from, bytes); SUCCESS }
    fn cudaMemcpyPeer(to: u64, _to_device: c_int, from: u64, _from_device: c_int, bytes: usize) {
        copy(to, from, bytes);
        SUCCESS
    }
    fn cudaMemcpyPeerAsync(to: u64, _to_device: c_int, from: u64, _from_device: c_int, bytes: usize, _stream: usize) {
        copy(to, from, bytes);
        SUCCESS
    }
    fn cudaMemcpy2D(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: c_int) {
        copy_rows(to, to_pitch, from, from_pitch, width, height)
    }
    fn cudaMemcpy2DAsync(
        to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: c_int, _stream: usize,
    ) {
        copy_rows(to, to_pitch, from, from_pitch, width, height)
    }
    fn cudaMemset(at: u64, value: c_int, bytes: usize) { fill(at, value, bytes); SUCCESS }
    fn cudaMemsetAsync(at: u64, value: c_int, bytes: usize, _stream: usize) { fill(at, value, bytes); SUCCESS }
    // A symbol is the host's shadow of a device variable: writing to the variable leaves the shadow alone.
    fn cudaMemcpyFromSymbol(to: *mut c_void, _symbol: usize, bytes: usize) { abi::zero(to, bytes); SUCCESS }
    fn cudaGetSymbolSize(out: *mut usize, _symbol: usize) { put(out, 0); SUCCESS }

    fn cudaDeviceGetDefaultMemPool(out: *mut usize, device: c_int) { pool_of(out, device) }
    fn cudaDeviceGetMemPool(out: *mut usize, device: c_int) { pool_of(out, device) }
    fn cudaMemPoolCreate(out: *mut usize, _properties: usize) { pool_of(out, machine::current_ordinal()) }
    fn cudaMemPoolGetAttribute(pool: usize, attribute: c_int, out: *mut c_void) { pool_attribute(pool, attribute, out) }

    // Sharing between processes would need a common address space; the callers fall back or say so.
    fn cudaIpcOpenMemHandle(_out: usize) { error(NOT_SUPPORTED) }
    fn cudaIpcOpenEventHandle(_out: usize) { error(NOT_SUPPORTED) }
    fn cudaIpcGetMemHandle(out: *mut c_void, address: u64) {
        abi::zero(out, 64);
        put(out.cast::<u64>(), address);
        SUCCESS
    }
    fn cudaIpcGetEventHandle(out: *mut c_void, event: c_ulonglong) {
        abi::zero(out, 64);
        put(out.cast::<u64>(), event);
        SUCCESS
    }
}

fn pool_of(out: *mut usize, ordinal: c_int) -> c_int {
    match machine::device(ordinal) {
        Some(device) => {
            put(out, POOL_HANDLE + 8 * device.index);
            SUCCESS
        }
        None => error(machine::no_such_device()),
    }
}

fn copy_rows(
    to: u64,
    to_pitch: usize,
    from: u64,
    from_pitch: usize,
    width: usize,
    height: usize,
) -> c_int {
    if memory::is_device(to) {
        mirror::forget(to, to_pitch.saturating_mul(height));
        return SUCCESS;
    }
    for row in 0..height {
        copy(
            to + (row * to_pitch) as u64,
            from + (row * from_pitch) as u64,
            width,
        );
    }
    SUCCESS
}

/// Names and texts of the errors this library gives; the name is the runtime's.
const ERRORS: &[(c_int, &std::ffi::CStr, &std::ffi::CStr)] = &[
    (0, c"cudaSuccess", c"no error"),
    (1, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (
        100,
        c"cudaErrorNoDevice",
        c"no CUDA-capable device is detected",
    ),
    (101, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (
        401,
        c"cudaErrorIllegalState",
        c"the operation cannot be performed in the present state",
    ),
    (500, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, c"cudaErrorNotReady", c"device not ready"),
    (801, c"cudaErrorNotSupported", c"operation not supported"),
    (
        900,
        c"cudaErrorStreamCaptureUnsupported",
        c"operation not permitted when stream is capturing",
    ),
    (
        901,
        c"cudaErrorStreamCaptureInvalidated",
        c"operation failed due to a previous error during capture",
    ),
    (
        903,
        c"cudaErrorStreamCaptureUnmatched",
        c"capture was not ended in the same stream as it began",
    ),
    (999, c"cudaErrorUnknown", c"unknown error"),
];

pub(crate) fn error_row(code: c_int) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
    ERRORS.iter().find(|(known, _, _)| *known == code).map_or(
        (c"unrecognized error code", c"unrecognized error code"),
        |(_, name, text)| (*name, *text),
    )
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorName(code: c_int) -> *const c_char {
    error_row(code).0.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cudaGetErrorString(code: c_int) -> *const c_char {
    IS_ASKED.store(true, Ordering::Relaxed);
    error_row(code).1.as_ptr()
}
