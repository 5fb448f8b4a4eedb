//! What every export shares: no panic leaves the library, out-pointers may be null, handles are never zero.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value every CUDA library uses for "it worked".
pub(crate) const SUCCESS: c_int = 0;
/// `cudaErrorInvalidValue`, `CUDA_ERROR_INVALID_VALUE`.
pub(crate) const INVALID_VALUE: c_int = 1;
/// `cudaErrorMemoryAllocation`, `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: c_int = 2;
/// `cudaErrorNoDevice`, `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: c_int = 100;
/// `cudaErrorInvalidDevice`, `CUDA_ERROR_INVALID_DEVICE`.
pub(crate) const INVALID_DEVICE: c_int = 101;
/// `cudaErrorSymbolNotFound`, `CUDA_ERROR_NOT_FOUND`.
pub(crate) const NOT_FOUND: c_int = 500;
/// `cudaErrorNotSupported`, `CUDA_ERROR_NOT_SUPPORTED`.
pub(crate) const NOT_SUPPORTED: c_int = 801;
/// `cudaErrorUnknown`, `CUDA_ERROR_UNKNOWN`.
const UNKNOWN: c_int = 999;

/// Defines C entry points which give an `int` and turn a panic into "unknown error".
///
/// A panic that reached the C caller would abort the training process.
macro_rules! exports {
    ($( $(#[$meta:meta])* fn $name:ident ( $($arg:ident : $kind:ty),* $(,)? ) $body:block )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($arg: $kind),*) -> ::std::ffi::c_int {
            $crate::abi::guard(move || $body)
        }
    )*};
}
pub(crate) use exports;

/// Defines entry points that take anything, do nothing and give zero: success, or a null pointer.
///
/// The C calling conventions of x86-64 and aarch64 let a function ignore its arguments,
/// and a whole zeroed register serves `int`, pointer and the eight-byte `CUfileError_t` alike.
macro_rules! noops {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> usize {
            0
        }
    )*};
}
pub(crate) use noops;

pub(crate) fn guard(body: impl FnOnce() -> c_int) -> c_int {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(UNKNOWN)
}

/// Writes through an out-pointer unless it is null.
pub(crate) fn put<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: every caller hands on an out-pointer of a C function, which its contract makes writable.
        // Unaligned, because C callers of `void*` attributes promise no alignment.
        unsafe { out.write_unaligned(value) }
    }
}

/// Reads through a pointer given by the C caller; `None` if it is null.
pub(crate) fn get<T: Copy>(from: *const T) -> Option<T> {
    if from.is_null() {
        return None;
    }
    // SAFETY: every caller hands on a pointer which the C function's contract makes readable as `T`.
    Some(unsafe { from.read_unaligned() })
}

/// The elements behind a C array of `count`; empty if it is null or the count is not positive.
pub(crate) fn list<T: Copy>(from: *const T, count: c_int) -> Vec<T> {
    let count = usize::try_from(count).unwrap_or(0);
    (0..count)
        .filter_map(|i| get(from.wrapping_add(i)))
        .collect()
}

/// Writes a text with its terminating zero into a C buffer, shortened if need be.
pub(crate) fn put_text(out: *mut c_char, length: usize, text: &str) {
    if out.is_null() || length == 0 {
        return;
    }
    let shown = text.len().min(length - 1);
    // SAFETY: the C contract of each caller makes `length` bytes at `out` writable, and `shown < length`.
    unsafe {
        out.cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), shown);
        out.add(shown).write(0);
    }
}

/// Copies a C string; empty if null or not UTF-8.
pub(crate) fn text(from: *const c_char) -> String {
    if from.is_null() {
        return String::new();
    }
    // SAFETY: the C contract of each caller makes this a zero-terminated string.
    unsafe { CStr::from_ptr(from) }
        .to_str()
        .unwrap_or_default()
        .to_owned()
}

/// Zeroes memory the C caller owns.
pub(crate) fn zero(at: *mut c_void, bytes: usize) {
    if !at.is_null() {
        // SAFETY: the C contract of each caller makes `bytes` bytes at `at` writable.
        unsafe { at.cast::<u8>().write_bytes(0, bytes) }
    }
}

/// A fresh handle for things that have no contents: streams, events, modules, descriptors.
pub(crate) fn handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0x1_0000);
    NEXT.fetch_add(16, Ordering::Relaxed)
}

/// Gives the caller a fresh handle.
pub(crate) fn put_handle(out: *mut usize) -> c_int {
    put(out, handle());
    SUCCESS
}

/// Gives the caller ownership of `value` behind an opaque pointer.
pub(crate) fn put_boxed<T>(out: *mut *mut T, value: T) -> c_int {
    if out.is_null() {
        return INVALID_VALUE;
    }
    put(out, Box::into_raw(Box::new(value)));
    SUCCESS
}

/// Takes back what `put_boxed` gave.
pub(crate) fn drop_boxed<T>(pointer: *mut T) -> c_int {
    if !pointer.is_null() {
        // SAFETY: the C API pairs each destroy call with one create call, which made this box.
        drop(unsafe { Box::from_raw(pointer) });
    }
    SUCCESS
}

/// Borrows what `put_boxed` gave, for the length of one call.
pub(crate) fn boxed<'a, T>(pointer: *mut T) -> Option<&'a mut T> {
    // SAFETY: a descriptor made by `put_boxed` and not yet destroyed; the C API forbids concurrent use of
    // one.
    unsafe { pointer.as_mut() }
}

/// A lock that a panic elsewhere does not close for ever.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says something to the person at the terminal; a closed stderr is not our concern.
pub(crate) fn say(message: &str) {
    let _ = writeln!(std::io::stderr(), "brimful phantom: {message}");
}

// The few C library functions needed; all of them are in glibc 2.2.5, far below our floor of 2.17.
unsafe extern "C" {
    pub(crate) fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    pub(crate) fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    pub(crate) fn dladdr(address: *const c_void, found: *mut DlInfo) -> c_int;
    pub(crate) fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int;
    pub(crate) fn free(at: *mut c_void);
    pub(crate) fn _exit(code: c_int) -> !;
    pub(crate) fn memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
}

/// `Dl_info` of `<dlfcn.h>`.
#[repr(C)]
pub(crate) struct DlInfo {
    pub(crate) file: *const c_char,
    pub(crate) base: *mut c_void,
    pub(crate) symbol: *const c_char,
    pub(crate) address: *mut c_void,
}

pub(crate) const RTLD_LAZY: c_int = 1;
pub(crate) const RTLD_NOLOAD: c_int = 4;
pub(crate) const RTLD_DEEPBIND: c_int = 8;
pub(crate) const RTLD_GLOBAL: c_int = 0x100;
