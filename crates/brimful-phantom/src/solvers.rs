//! cuSOLVER, cuSPARSE, cuSPARSELt and cuFFT: handles, descriptors and workspace sizes.
//!
//! NVIDIA publishes no formula for these sizes, so they are guesses, each noted in the report.

use std::ffi::{c_int, c_longlong, c_void};

use crate::abi::{self, SUCCESS, boxed, drop_boxed, exports, put, put_boxed, put_handle};
use crate::report;

/// Columns of one panel in the blocked algorithms of LAPACK's kind.
const PANEL: i64 = 64;

fn wide(n: c_int) -> i64 {
    i64::from(n)
}

/// Elements for a blocked factorisation of an m by n matrix: one panel of it and the panel's square.
fn factorisation(out: *mut c_int, m: c_int, n: c_int) -> c_int {
    report::guess("cusolver-workspace");
    let elements = PANEL * wide(m.max(n)).max(1) + PANEL * PANEL;
    put(out, c_int::try_from(elements).unwrap_or(c_int::MAX));
    SUCCESS
}

/// Elements for an eigenvalue or singular value problem: LAPACK's divide and conquer asks for about two
/// matrices.
fn decomposition(out: *mut c_int, m: c_int, n: c_int, batch: c_int) -> c_int {
    report::guess("cusolver-workspace");
    let side = wide(m.max(n)).max(1);
    let elements = (2 * side * wide(m.min(n)).max(1) + 8 * side).saturating_mul(wide(batch).max(1));
    put(out, c_int::try_from(elements).unwrap_or(c_int::MAX));
    SUCCESS
}

/// `cudaDataType`: the bytes of one element.
fn element_bytes(kind: c_int) -> i64 {
    match kind {
        1 | 4 => 8,  // double, complex float
        2 | 14 => 2, // half, bfloat16
        5 => 16,     // complex double
        _ => 4,      // float
    }
}

/// The 64-bit interface wants bytes, on the device and on the host.
fn bytes_64(device: *mut usize, host: *mut usize, elements: i64, kind: c_int) -> c_int {
    report::guess("cusolver-workspace");
    let bytes = elements.max(1).saturating_mul(element_bytes(kind));
    put(device, usize::try_from(bytes).unwrap_or(0));
    put(host, 0);
    SUCCESS
}

/// The four types of one routine whose arguments before the result are all alike.
macro_rules! four {
    ($($s:ident $d:ident $c:ident $z:ident ($($arg:ident : $kind:ty),*) $body:expr;)*) => {$(
        exports! {
            fn $s($($arg: $kind),*) { $body }
            fn $d($($arg: $kind),*) { $body }
            fn $c($($arg: $kind),*) { $body }
            fn $z($($arg: $kind),*) { $body }
        }
    )*};
}

four! {
    cusolverDnSgeqrf_bufferSize cusolverDnDgeqrf_bufferSize cusolverDnCgeqrf_bufferSize cusolverDnZgeqrf_bufferSize
        (_handle: usize, m: c_int, n: c_int, _a: usize, _lda: c_int, out: *mut c_int) factorisation(out, m, n);
    cusolverDnSgetrf_bufferSize cusolverDnDgetrf_bufferSize cusolverDnCgetrf_bufferSize cusolverDnZgetrf_bufferSize
        (_handle: usize, m: c_int, n: c_int, _a: usize, _lda: c_int, out: *mut c_int) factorisation(out, m, n);
    cusolverDnSpotrf_bufferSize cusolverDnDpotrf_bufferSize cusolverDnCpotrf_bufferSize cusolverDnZpotrf_bufferSize
        (_handle: usize, _uplo: c_int, n: c_int, _a: usize, _lda: c_int, out: *mut c_int) factorisation(out, n, n);
    cusolverDnSsytrf_bufferSize cusolverDnDsytrf_bufferSize cusolverDnCsytrf_bufferSize cusolverDnZsytrf_bufferSize
        (_handle: usize, n: c_int, _a: usize, _lda: c_int, out: *mut c_int) factorisation(out, n, n);
    cusolverDnSorgqr_bufferSize cusolverDnDorgqr_bufferSize cusolverDnCungqr_bufferSize cusolverDnZungqr_bufferSize
        (_handle: usize, m: c_int, n: c_int, _k: c_int, _a: usize, _lda: c_int, _tau: usize, out: *mut c_int)
        factorisation(out, m, n);
    cusolverDnSormqr_bufferSize cusolverDnDormqr_bufferSize cusolverDnCunmqr_bufferSize cusolverDnZunmqr_bufferSize
        (_handle: usize, _side: c_int, _trans: c_int, m: c_int, n: c_int, _k: c_int, _a: usize, _lda: c_int, _tau: usize,
         _c: usize, _ldc: c_int, out: *mut c_int)
        factorisation(out, m, n);
    cusolverDnSgesvd_bufferSize cusolverDnDgesvd_bufferSize cusolverDnCgesvd_bufferSize cusolverDnZgesvd_bufferSize
        (_handle: usize, m: c_int, n: c_int, out: *mut c_int) decomposition(out, m, n, 1);
    cusolverDnSgesvdj_bufferSize cusolverDnDgesvdj_bufferSize cusolverDnCgesvdj_bufferSize cusolverDnZgesvdj_bufferSize
        (_handle: usize, _job: c_int, _econ: c_int, m: c_int, n: c_int, _a: usize, _lda: c_int, _s: usize, _u: usize,
         _ldu: c_int, _v: usize, _ldv: c_int, out: *mut c_int)
        decomposition(out, m, n, 1);
    cusolverDnSgesvdjBatched_bufferSize cusolverDnDgesvdjBatched_bufferSize
        cusolverDnCgesvdjBatched_bufferSize cusolverDnZgesvdjBatched_bufferSize
        (_handle: usize, _job: c_int, m: c_int, n: c_int, _a: usize, _lda: c_int, _s: usize, _u: usize, _ldu: c_int,
         _v: usize, _ldv: c_int, out: *mut c_int, _params: usize, batch: c_int)
        decomposition(out, m, n, batch);
    cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched_bufferSize
        cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched_bufferSize
        (_handle: usize, _job: c_int, _rank: c_int, m: c_int, n: c_int, _a: usize, _lda: c_int, _stride_a: i64, _s: usize,
         _stride_s: i64, _u: usize, _ldu: c_int, _stride_u: i64, _v: usize, _ldv: c_int, _stride_v: i64, out: *mut c_int,
         batch: c_int)
        decomposition(out, m, n, batch);
    cusolverDnSsyevd_bufferSize cusolverDnDsyevd_bufferSize cusolverDnCheevd_bufferSize cusolverDnZheevd_bufferSize
        (_handle: usize, _job: c_int, _uplo: c_int, n: c_int, _a: usize, _lda: c_int, _w: usize, out: *mut c_int)
        decomposition(out, n, n, 1);
    cusolverDnSsyevj_bufferSize cusolverDnDsyevj_bufferSize cusolverDnCheevj_bufferSize cusolverDnZheevj_bufferSize
        (_handle: usize, _job: c_int, _uplo: c_int, n: c_int, _a: usize, _lda: c_int, _w: usize, out: *mut c_int)
        decomposition(out, n, n, 1);
    cusolverDnSsyevjBatched_bufferSize cusolverDnDsyevjBatched_bufferSize
        cusolverDnCheevjBatched_bufferSize cusolverDnZheevjBatched_bufferSize
        (_handle: usize, _job: c_int, _uplo: c_int, n: c_int, _a: usize, _lda: c_int, _w: usize, out: *mut c_int,
         _params: usize, batch: c_int)
        decomposition(out, n, n, batch);
    cusparseSbsrsm2_bufferSize cusparseDbsrsm2_bufferSize cusparseCbsrsm2_bufferSize cusparseZbsrsm2_bufferSize
        (_handle: usize, _dir: c_int, _ta: c_int, _tx: c_int, mb: c_int, _n: c_int, _nnz: c_int, _descr: usize, _val: usize,
         _row: usize, _col: usize, _block: c_int, _info: usize, out: *mut c_int)
        rows_buffer(out, mb);
    cusparseSbsrsv2_bufferSize cusparseDbsrsv2_bufferSize cusparseCbsrsv2_bufferSize cusparseZbsrsv2_bufferSize
        (_handle: usize, _dir: c_int, _ta: c_int, mb: c_int, _nnz: c_int, _descr: usize, _val: usize, _row: usize,
         _col: usize, _block: c_int, _info: usize, out: *mut c_int)
        rows_buffer(out, mb);
    cusparseScsrgeam2_bufferSizeExt cusparseDcsrgeam2_bufferSizeExt
        cusparseCcsrgeam2_bufferSizeExt cusparseZcsrgeam2_bufferSizeExt
        (_handle: usize, m: c_int, _n: c_int, _alpha: usize, _da: usize, _na: c_int, _va: usize, _ra: usize, _ca: usize,
         _beta: usize, _db: usize, _nb: c_int, _vb: usize, _rb: usize, _cb: usize, _dc: usize, _vc: usize, _rc: usize,
         _cc: usize, out: *mut usize)
        sparse_buffer(out, wide(m) * 4);
}

fn rows_buffer(out: *mut c_int, rows: c_int) -> c_int {
    report::guess("cusparse-workspace");
    put(out, rows.saturating_mul(4).max(4));
    SUCCESS
}

fn sparse_buffer(out: *mut usize, bytes: i64) -> c_int {
    report::guess("cusparse-workspace");
    put(out, usize::try_from(bytes).unwrap_or(0));
    SUCCESS
}

exports! {
    fn cusolverDnCreate(out: *mut usize) { put_handle(out) }
    fn cusolverDnCreateParams(out: *mut usize) { put_handle(out) }
    fn cusolverDnCreateGesvdjInfo(out: *mut usize) { put_handle(out) }
    fn cusolverDnCreateSyevjInfo(out: *mut usize) { put_handle(out) }
    fn cusolverDnXgeqrf_bufferSize(
        _handle: usize, _params: usize, m: i64, n: i64, kind: c_int, _a: usize, _lda: i64, _tau_kind: c_int, _tau: usize,
        _compute: c_int, device: *mut usize, host: *mut usize,
    ) {
        bytes_64(device, host, PANEL * m.max(n) + PANEL * PANEL, kind)
    }
    fn cusolverDnXpotrf_bufferSize(
        _handle: usize, _params: usize, _uplo: c_int, n: i64, kind: c_int, _a: usize, _lda: i64, _compute: c_int,
        device: *mut usize, host: *mut usize,
    ) {
        bytes_64(device, host, PANEL * n + PANEL * PANEL, kind)
    }
    fn cusolverDnXsyevd_bufferSize(
        _handle: usize, _params: usize, _job: c_int, _uplo: c_int, n: i64, kind: c_int, _a: usize, _lda: i64,
        _w_kind: c_int, _w: usize, _compute: c_int, device: *mut usize, host: *mut usize,
    ) {
        bytes_64(device, host, 2 * n * n + 8 * n, kind)
    }
    fn cusolverDnXsyevBatched_bufferSize(
        _handle: usize, _params: usize, _job: c_int, _uplo: c_int, n: i64, kind: c_int, _a: usize, _lda: i64,
        _w_kind: c_int, _w: usize, _compute: c_int, device: *mut usize, host: *mut usize, batch: i64,
    ) {
        bytes_64(device, host, (2 * n * n + 8 * n).saturating_mul(batch), kind)
    }
    fn cusolverDnXsytrs_bufferSize(
        _handle: usize, _uplo: c_int, n: i64, columns: i64, kind: c_int, _a: usize, _lda: i64, _pivots: usize,
        _b_kind: c_int, _b: usize, _ldb: i64, device: *mut usize, host: *mut usize,
    ) {
        bytes_64(device, host, n * columns, kind)
    }
    fn cusolverDnXgeev_bufferSize(
        _handle: usize, _params: usize, _left: c_int, _right: c_int, n: i64, kind: c_int, _a: usize, _lda: i64,
        _w_kind: c_int, _w: usize, _vl_kind: c_int, _vl: usize, _ldvl: i64, _vr_kind: c_int, _vr: usize, _ldvr: i64,
        _compute: c_int, device: *mut usize, host: *mut usize,
    ) {
        bytes_64(device, host, 3 * n * n + 8 * n, kind)
    }
}

/// The shape of a sparse matrix, which its owner may ask back.
#[derive(Debug)]
pub(crate) struct SparseMatrix {
    rows: i64,
    columns: i64,
    stored: i64,
}

fn sparse(out: *mut *mut SparseMatrix, rows: i64, columns: i64, stored: i64) -> c_int {
    put_boxed(
        out,
        SparseMatrix {
            rows,
            columns,
            stored,
        },
    )
}

exports! {
    fn cusparseCreate(out: *mut usize) { put_handle(out) }
    fn cusparseCreateMatDescr(out: *mut usize) { put_handle(out) }
    fn cusparseCreateBsrsm2Info(out: *mut usize) { put_handle(out) }
    fn cusparseCreateBsrsv2Info(out: *mut usize) { put_handle(out) }
    fn cusparseCreateDnMat(out: *mut usize) { put_handle(out) }
    fn cusparseCreateDnVec(out: *mut usize) { put_handle(out) }
    fn cusparseSpGEMM_createDescr(out: *mut usize) { put_handle(out) }
    fn cusparseSpSM_createDescr(out: *mut usize) { put_handle(out) }
    fn cusparseSpSV_createDescr(out: *mut usize) { put_handle(out) }
    fn cusparseCreateCsr(out: *mut *mut SparseMatrix, rows: i64, columns: i64, stored: i64) {
        sparse(out, rows, columns, stored)
    }
    fn cusparseCreateCsc(out: *mut *mut SparseMatrix, rows: i64, columns: i64, stored: i64) {
        sparse(out, rows, columns, stored)
    }
    fn cusparseCreateCoo(out: *mut *mut SparseMatrix, rows: i64, columns: i64, stored: i64) {
        sparse(out, rows, columns, stored)
    }
    fn cusparseCreateBsr(out: *mut *mut SparseMatrix, rows: i64, columns: i64, stored: i64) {
        sparse(out, rows, columns, stored)
    }
    fn cusparseDestroySpMat(matrix: *mut SparseMatrix) { drop_boxed(matrix) }
    fn cusparseSpMatGetSize(matrix: *mut SparseMatrix, rows: *mut i64, columns: *mut i64, stored: *mut i64) {
        if let Some(matrix) = boxed(matrix) {
            put(rows, matrix.rows);
            put(columns, matrix.columns);
            put(stored, matrix.stored);
        }
        SUCCESS
    }
    fn cusparseGetVersion(_handle: usize, out: *mut c_int) { put(out, 12_600); SUCCESS }
    fn cusparseSpMM_bufferSize(
        _handle: usize, _op_a: c_int, _op_b: c_int, _alpha: usize, matrix: *mut SparseMatrix, _b: usize, _beta: usize,
        _c: usize, _compute: c_int, _algorithm: c_int, out: *mut usize,
    ) {
        sparse_buffer(out, boxed(matrix).map_or(0, |m| m.rows * 4))
    }
    fn cusparseSpMV_bufferSize(
        _handle: usize, _op: c_int, _alpha: usize, matrix: *mut SparseMatrix, _x: usize, _beta: usize, _y: usize,
        _compute: c_int, _algorithm: c_int, out: *mut usize,
    ) {
        sparse_buffer(out, boxed(matrix).map_or(0, |m| m.rows * 4))
    }
    fn cusparseSDDMM_bufferSize(
        _handle: usize, _op_a: c_int, _op_b: c_int, _alpha: usize, _a: usize, _b: usize, _beta: usize,
        matrix: *mut SparseMatrix, _compute: c_int, _algorithm: c_int, out: *mut usize,
    ) {
        sparse_buffer(out, boxed(matrix).map_or(0, |m| m.rows * 4))
    }
    fn cusparseSpSM_bufferSize(
        _handle: usize, _op_a: c_int, _op_b: c_int, _alpha: usize, matrix: *mut SparseMatrix, _b: usize, _c: usize,
        _compute: c_int, _algorithm: c_int, _descriptor: usize, out: *mut usize,
    ) {
        sparse_buffer(out, boxed(matrix).map_or(0, |m| m.rows * 16))
    }
    fn cusparseSpSV_bufferSize(
        _handle: usize, _op: c_int, _alpha: usize, matrix: *mut SparseMatrix, _x: usize, _y: usize, _compute: c_int,
        _algorithm: c_int, _descriptor: usize, out: *mut usize,
    ) {
        sparse_buffer(out, boxed(matrix).map_or(0, |m| m.rows * 16))
    }
    fn cusparseSpGEMM_workEstimation(
        _handle: usize, _op_a: c_int, _op_b: c_int, _alpha: usize, matrix: *mut SparseMatrix, _b: usize, _beta: usize,
        _c: usize, _compute: c_int, _algorithm: c_int, _descriptor: usize, out: *mut usize, _buffer: usize,
    ) {
        sparse_buffer(out, boxed(matrix).map_or(0, |m| m.rows * 8))
    }
    fn cusparseSpGEMM_compute(
        _handle: usize, _op_a: c_int, _op_b: c_int, _alpha: usize, matrix: *mut SparseMatrix, _b: usize, _beta: usize,
        _c: usize, _compute: c_int, _algorithm: c_int, _descriptor: usize, out: *mut usize, _buffer: usize,
    ) {
        sparse_buffer(out, boxed(matrix).map_or(0, |m| m.stored * 12))
    }
    fn cusparseXcoosort_bufferSizeExt(
        _handle: usize, _m: c_int, _n: c_int, stored: c_int, _rows: usize, _columns: usize, out: *mut usize,
    ) {
        sparse_buffer(out, wide(stored) * 16)
    }
    fn cusparseXcsrsort_bufferSizeExt(
        _handle: usize, _m: c_int, _n: c_int, stored: c_int, _rows: usize, _columns: usize, out: *mut usize,
    ) {
        sparse_buffer(out, wide(stored) * 16)
    }
    // How many elements a sum has depends on values; all of both is the most.
    fn cusparseXcsrgeam2Nnz(
        _handle: usize, _m: c_int, _n: c_int, _da: usize, stored_a: c_int, _ra: usize, _ca: usize, _db: usize,
        stored_b: c_int, _rb: usize, _cb: usize, _dc: usize, _rc: usize, out: *mut c_int, _workspace: usize,
    ) {
        if !crate::memory::is_device(out as u64) {
            put(out, stored_a.saturating_add(stored_b));
        }
        SUCCESS
    }
    fn cusparseXbsrsm2_zeroPivot(_handle: usize, _info: usize, out: *mut c_int) { put(out, -1); SUCCESS }
    fn cusparseXbsrsv2_zeroPivot(_handle: usize, _info: usize, out: *mut c_int) { put(out, -1); SUCCESS }

    fn cusparseLtMatmulGetWorkspace(_handle: usize, _plan: usize, out: *mut usize) { sparse_buffer(out, 0) }
    // Half of the elements and two bits of place for each; the shape is inside an opaque structure.
    fn cusparseLtSpMMACompressedSize2(_handle: usize, _matrix: usize, size: *mut usize, buffer: *mut usize) {
        put(buffer, 0);
        sparse_buffer(size, 1 << 20)
    }
    fn cusparseLtMatmulAlgGetAttribute(
        _handle: usize, _selection: usize, _attribute: c_int, out: *mut c_void, bytes: usize,
    ) {
        abi::zero(out, bytes);
        SUCCESS
    }

    fn cufftCreate(out: *mut c_int) { put(out, c_int::try_from(abi::handle()).unwrap_or(1)); SUCCESS }
    fn cufftGetVersion(out: *mut c_int) { put(out, 12_000); SUCCESS }
    fn cufftXtMakePlanMany(
        _plan: c_int, rank: c_int, n: *const c_longlong, _inembed: usize, _istride: i64, _idist: i64, input: c_int,
        _onembed: usize, _ostride: i64, _odist: i64, _output: c_int, batch: c_longlong, out: *mut usize,
        _execution: c_int,
    ) {
        report::guess("cufft-workspace");
        put(out, fft_workspace(&abi::list(n, rank), batch, input));
        SUCCESS
    }
}

/// cuFFT's manual: lengths that factor into 2, 3, 5 and 7 are transformed directly; others go by Bluestein's
/// algorithm through a longer transform. Short direct ones stay in shared memory; else one copy of the data.
fn fft_workspace(lengths: &[i64], batch: i64, input: c_int) -> usize {
    let direct = |length: &i64| {
        let mut rest = (*length).max(1);
        for factor in [2, 3, 5, 7] {
            while rest % factor == 0 {
                rest /= factor;
            }
        }
        rest == 1
    };
    if let [length] = lengths
        && direct(length)
        && *length <= 4096
    {
        return 0;
    }
    let copies = if lengths.iter().all(direct) { 1 } else { 2 };
    // `CUDA_R_64F` and `CUDA_C_64F` work in complex doubles, the rest in complex floats.
    let element = if matches!(input, 1 | 5) { 16 } else { 8 };
    let total = lengths
        .iter()
        .fold(batch.max(1), |all, length| all.saturating_mul(*length));
    usize::try_from(total.saturating_mul(element * copies)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_or_awkward_transforms_need_a_workspace() {
        assert_eq!(fft_workspace(&[1024], 8, 4), 0);
        assert_eq!(fft_workspace(&[1 << 16], 2, 4), 2 * (1 << 16) * 8);
        assert_eq!(fft_workspace(&[1009], 1, 4), 2 * 1009 * 8);
        assert_eq!(fft_workspace(&[64, 64], 1, 5), 64 * 64 * 16);
    }
}
