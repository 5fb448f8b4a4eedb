//! NVRTC, nvJitLink, CUPTI, NVTX, NVSHMEM: present, polite, empty.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::abi::{SUCCESS, exports, put, put_handle};
use crate::generation;

exports! {
    fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) {
        put(major, generation::cuda_major());
        put(minor, generation::runtime_version() % 1000 / 10);
        SUCCESS
    }
    fn nvrtcCreateProgram(out: *mut usize) { put_handle(out) }
    // The code compiled from a program is one empty string.
    fn nvrtcGetPTXSize(_program: usize, out: *mut usize) { put(out, 1); SUCCESS }
    fn nvrtcGetPTX(_program: usize, out: *mut c_char) { put(out, 0); SUCCESS }
    fn nvrtcGetCUBINSize(_program: usize, out: *mut usize) { put(out, 1); SUCCESS }
    fn nvrtcGetCUBIN(_program: usize, out: *mut c_char) { put(out, 0); SUCCESS }
    fn nvrtcGetProgramLogSize(_program: usize, out: *mut usize) { put(out, 1); SUCCESS }
    fn nvrtcGetProgramLog(_program: usize, out: *mut c_char) { put(out, 0); SUCCESS }
    // The lowered name is the name itself: nothing will look for it.
    fn nvrtcGetLoweredName(_program: usize, name: *const c_char, out: *mut *const c_char) { put(out, name); SUCCESS }

    fn nvJitLinkCreate(out: *mut usize) { put_handle(out) }
    fn nvJitLinkGetLinkedCubinSize(_link: usize, out: *mut usize) { put(out, 1); SUCCESS }
    fn nvJitLinkGetLinkedCubin(_link: usize, out: *mut c_char) { put(out, 0); SUCCESS }
    fn nvJitLinkVersion(major: *mut c_uint, minor: *mut c_uint) {
        put(major, generation::cuda_major().unsigned_abs());
        put(minor, 0);
        SUCCESS
    }

    fn cuptiGetVersion(out: *mut c_uint) { put(out, 28); SUCCESS }
    fn cuptiGetResultString(_code: c_int, out: *mut *const c_char) { put(out, c"phantom CUPTI result".as_ptr()); SUCCESS }
    fn cuptiGetCallbackName(_domain: c_int, _id: c_uint, out: *mut *const c_char) { put(out, c"phantom".as_ptr()); SUCCESS }
    fn cuptiSubscribe(out: *mut usize) { put_handle(out) }
    // "No further record": no kernel ever leaves one.
    fn cuptiActivityGetNextRecord(_buffer: usize, _bytes: usize, out: *mut *mut c_void) {
        put(out, std::ptr::null_mut());
        12
    }
    fn cuptiActivityGetNumDroppedRecords(_context: usize, _stream: c_uint, out: *mut usize) { put(out, 0); SUCCESS }
    fn cuptiGetTimestamp(out: *mut u64) { put(out, 0); SUCCESS }

    fn nvshmem_info_get_version(major: *mut c_int, minor: *mut c_int) { put(major, 3); put(minor, 4); SUCCESS }
}

#[unsafe(no_mangle)]
extern "C" fn nvrtcGetErrorString(_code: c_int) -> *const c_char {
    c"phantom NVRTC result".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cusparseGetErrorString(_code: c_int) -> *const c_char {
    c"phantom cuSPARSE status".as_ptr()
}
