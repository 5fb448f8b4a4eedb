//! cuBLAS and cuBLASLt. PyTorch allocates their workspaces itself, so only handles and heuristics are needed.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{self, SUCCESS, exports, put, put_handle};
use crate::generation;

/// `cublasLtMatmulHeuristicResult_t`: 64 bytes of algorithm, workspace size, status, waves, four reserved
/// `int`.
const RESULT_BYTES: usize = 96;
const RESULT_WAVES: usize = 76;

fn version() -> c_int {
    if generation::cuda_major() >= 13 {
        130_101
    } else {
        120_804
    }
}

exports! {
    fn cublasCreate_v2(out: *mut usize) { put_handle(out) }
    fn cublasGetVersion_v2(_handle: usize, out: *mut c_int) { put(out, version()); SUCCESS }
    fn cublasGetMathMode(_handle: usize, out: *mut c_int) { put(out, 0); SUCCESS }
    fn cublasGetPointerMode_v2(_handle: usize, out: *mut c_int) { put(out, 0); SUCCESS }
    fn cublasGetStream_v2(_handle: usize, out: *mut usize) { put(out, 0); SUCCESS }
    fn cublasGetSmCountTarget(_handle: usize, out: *mut c_int) { put(out, 0); SUCCESS }
    fn cublasLtCreate(out: *mut usize) { put_handle(out) }
    fn cublasLtMatmulDescCreate(out: *mut usize) { put_handle(out) }
    fn cublasLtMatmulPreferenceCreate(out: *mut usize) { put_handle(out) }
    fn cublasLtMatrixLayoutCreate(out: *mut usize) { put_handle(out) }
    fn cublasLtMatrixTransformDescCreate(out: *mut usize) { put_handle(out) }
    // One algorithm that needs no workspace: PyTorch has already allocated the one it offers.
    fn cublasLtMatmulAlgoGetHeuristic(
        _handle: usize, _operation: usize, _a: usize, _b: usize, _c: usize, _d: usize, _preference: usize,
        wanted: c_int, results: *mut c_void, found: *mut c_int,
    ) {
        if wanted < 1 || results.is_null() {
            put(found, 0);
            return SUCCESS;
        }
        abi::zero(results, RESULT_BYTES);
        put(results.wrapping_byte_add(RESULT_WAVES).cast::<f32>(), 1.0);
        put(found, 1);
        SUCCESS
    }
    fn cublasLtMatmulAlgoCheck(
        _handle: usize, _operation: usize, _a: usize, _b: usize, _c: usize, _d: usize, _algorithm: usize,
        result: *mut c_void,
    ) {
        abi::zero(result, RESULT_BYTES);
        SUCCESS
    }
    fn cublasLtMatmulAlgoInit(
        _handle: usize, _compute: c_int, _scale: c_int, _a: c_int, _b: c_int, _c: c_int, _d: c_int, _id: c_int,
        algorithm: *mut c_void,
    ) {
        abi::zero(algorithm, 64);
        SUCCESS
    }
    fn cublasLtMatmulAlgoConfigGetAttribute(
        _algorithm: usize, _attribute: c_int, out: *mut c_void, bytes: usize, written: *mut usize,
    ) {
        abi::zero(out, bytes);
        put(written, bytes);
        SUCCESS
    }
}

/// Batched factorisations tell the host at once whether their arguments were right.
macro_rules! batched {
    ($($geqrf:ident $getrs:ident $gels:ident)*) => {$(
        exports! {
            fn $geqrf(
                _handle: usize, _m: c_int, _n: c_int, _a: usize, _lda: c_int, _tau: usize, info: *mut c_int, _batch: c_int,
            ) {
                put(info, 0);
                SUCCESS
            }
            fn $getrs(
                _handle: usize, _trans: c_int, _n: c_int, _columns: c_int, _a: usize, _lda: c_int, _pivots: usize,
                _b: usize, _ldb: c_int, info: *mut c_int, _batch: c_int,
            ) {
                put(info, 0);
                SUCCESS
            }
            fn $gels(
                _handle: usize, _trans: c_int, _m: c_int, _n: c_int, _columns: c_int, _a: usize, _lda: c_int, _c: usize,
                _ldc: c_int, info: *mut c_int, _device_info: usize, _batch: c_int,
            ) {
                put(info, 0);
                SUCCESS
            }
        }
    )*};
}

batched! {
    cublasSgeqrfBatched cublasSgetrsBatched cublasSgelsBatched
    cublasDgeqrfBatched cublasDgetrsBatched cublasDgelsBatched
    cublasCgeqrfBatched cublasCgetrsBatched cublasCgelsBatched
    cublasZgeqrfBatched cublasZgetrsBatched cublasZgelsBatched
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    usize::try_from(version()).unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetCudartVersion() -> usize {
    usize::try_from(generation::runtime_version()).unwrap_or(0)
}

#[unsafe(no_mangle)]
extern "C" fn cublasGetStatusString(_code: c_int) -> *const c_char {
    c"phantom cuBLAS status".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusString(_code: c_int) -> *const c_char {
    c"phantom cuBLAS status".as_ptr()
}
