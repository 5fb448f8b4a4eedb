//! cuDNN.
//!
//! Convolutions go through the backend interface: descriptors, heuristics, a plan with its workspace,
//! execution. With `BRIMFUL_PHANTOM_CUDNN` it is forwarded to a real library in NVIDIA's documented
//! deviceless mode ([`forward`]); else answered from [`backend`], where every plan works without a workspace.
//! Batch normalisation, recurrent nets and dropout use the older interface ([`legacy`]), whose sizes are
//! formulas of ours.

use std::ffi::{c_char, c_int};

use crate::abi::{SUCCESS, exports, guard, put, put_handle, put_text};
use crate::generation;
use crate::machine;

mod backend;
mod forward;
mod legacy;
mod status;

pub(crate) use status::{BAD_PARAM, NOT_SUPPORTED};

/// 9.99.0.
const NEWEST: usize = 99_900;

/// The version in cuDNN's form: 91002 is 9.10.2.
///
/// PyTorch refuses one older than it was built with, and some choices of kernels depend on it. Without a real
/// library it is what `BRIMFUL_PHANTOM_CUDNN_VERSION` says, or else newer than any.
fn version() -> usize {
    if let Some(real) = forward::library() {
        return real.version;
    }
    machine::environment(crate::env_vars::BRIMFUL_PHANTOM_CUDNN_VERSION)
        .and_then(|text| text.parse().ok())
        .unwrap_or(NEWEST)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetVersion() -> usize {
    std::panic::catch_unwind(version).unwrap_or(NEWEST)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetCudartVersion() -> usize {
    usize::try_from(generation::runtime_version()).unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetErrorString(code: c_int) -> *const c_char {
    match code {
        SUCCESS => c"CUDNN_STATUS_SUCCESS".as_ptr(),
        BAD_PARAM => c"CUDNN_STATUS_BAD_PARAM".as_ptr(),
        NOT_SUPPORTED => c"CUDNN_STATUS_NOT_SUPPORTED".as_ptr(),
        _ => c"phantom cuDNN status".as_ptr(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn cudnnGetLastErrorString(out: *mut c_char, length: usize) {
    guard(|| {
        match forward::library() {
            Some(real) => (real.last_error)(out, length),
            None => put_text(out, length, ""),
        }
        SUCCESS
    });
}

exports! {
    fn cudnnCreate(out: *mut usize) { put_handle(out) }
    fn cudnnGetStream(_handle: usize, out: *mut usize) { put(out, 0); SUCCESS }
    // `MAJOR_VERSION`, `MINOR_VERSION`, `PATCH_LEVEL`.
    fn cudnnGetProperty(kind: c_int, out: *mut c_int) {
        let version = c_int::try_from(version()).unwrap_or(0);
        put(out, match kind {
            0 => version / 10_000,
            1 => version / 100 % 100,
            _ => version % 100,
        });
        SUCCESS
    }

    fn cudnnBackendCreateDescriptor(kind: c_int, out: *mut usize) {
        match forward::library() {
            Some(real) => (real.create)(kind, out),
            None => backend::create(kind, out),
        }
    }
    fn cudnnBackendDestroyDescriptor(descriptor: usize) {
        match forward::library() {
            Some(real) => (real.destroy)(descriptor),
            None => backend::destroy(descriptor),
        }
    }
    fn cudnnBackendFinalize(descriptor: usize) {
        match forward::library() {
            Some(real) => forward::finalize(real, descriptor),
            None => SUCCESS,
        }
    }
    fn cudnnBackendSetAttribute(descriptor: usize, name: c_int, kind: c_int, count: i64, values: usize) {
        match forward::library() {
            Some(real) => forward::set_attribute(real, descriptor, name, kind, count, values),
            None => backend::set_attribute(descriptor, name, kind, count, values),
        }
    }
    fn cudnnBackendGetAttribute(
        descriptor: usize, name: c_int, kind: c_int, wanted: i64, count: *mut i64, values: usize,
    ) {
        match forward::library() {
            Some(real) => (real.get)(descriptor, name, kind, wanted, count, values),
            None => backend::get_attribute(descriptor, name, kind, wanted, count, values),
        }
    }
    fn cudnnBackendExecute(_handle: usize, _plan: usize, _pack: usize) {
        crate::report::KERNELS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        crate::report::CUDNN_PLANS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        SUCCESS
    }
}
