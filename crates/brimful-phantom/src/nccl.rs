//! NCCL: communicators are made and counted, collectives succeed at once. Its buffers are not charged to a
//! device.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{
    self, INVALID_VALUE, SUCCESS, boxed, drop_boxed, exports, put, put_boxed, put_handle,
};
use crate::mirror;
use crate::report;
use crate::runtime;

/// The version PyTorch's wheels of both generations accept.
const VERSION: c_int = 22_907;
const UNSUPPORTED: c_int = 5;

/// `ncclUniqueId`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct UniqueId {
    bytes: [u8; 128],
}

/// What an `ncclComm_t` points to.
#[derive(Debug)]
pub(crate) struct Communicator {
    rank: c_int,
    ranks: c_int,
}

fn make(out: *mut *mut Communicator, ranks: c_int, rank: c_int) -> c_int {
    report::communicator(ranks);
    put_boxed(out, Communicator { rank, ranks })
}

/// `ncclDataType_t`: the size of one element.
fn element_bytes(kind: c_int) -> usize {
    match kind {
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        6 | 9 => 2,
        _ => 1,
    }
}

fn ranks_of(communicator: *mut Communicator) -> usize {
    boxed(communicator)
        .and_then(|c| usize::try_from(c.ranks).ok())
        .unwrap_or(1)
}

exports! {
    fn ncclGetVersion(out: *mut c_int) { put(out, VERSION); SUCCESS }
    fn ncclGetUniqueId(out: *mut UniqueId) {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(b"phantom\0");
        bytes[8..16].copy_from_slice(&abi::handle().to_ne_bytes());
        put(out, UniqueId { bytes });
        SUCCESS
    }
    fn ncclCommGetUniqueId(_communicator: usize, out: *mut UniqueId) { ncclGetUniqueId(out) }
    fn ncclCommInitRank(out: *mut *mut Communicator, ranks: c_int, _id: UniqueId, rank: c_int) { make(out, ranks, rank) }
    fn ncclCommInitRankConfig(
        out: *mut *mut Communicator, ranks: c_int, _id: UniqueId, rank: c_int, _config: usize,
    ) {
        make(out, ranks, rank)
    }
    fn ncclCommInitRankScalable(
        out: *mut *mut Communicator, ranks: c_int, rank: c_int, _ids: c_int, _list: usize, _config: usize,
    ) {
        make(out, ranks, rank)
    }
    fn ncclCommInitAll(out: *mut *mut Communicator, devices: c_int, _list: usize) {
        for rank in 0..devices {
            make(out.wrapping_add(usize::try_from(rank).unwrap_or(0)), devices, rank);
        }
        SUCCESS
    }
    // The new group's size depends on the colours of all ranks, which only they know; the parent's size
    // bounds it.
    fn ncclCommSplit(
        parent: *mut Communicator, color: c_int, _key: c_int, out: *mut *mut Communicator, _config: usize,
    ) {
        // A negative colour means "not I".
        if color < 0 {
            put(out, std::ptr::null_mut());
            return SUCCESS;
        }
        match boxed(parent) {
            Some(parent) => make(out, parent.ranks, parent.rank),
            None => INVALID_VALUE,
        }
    }
    fn ncclCommShrink(
        parent: *mut Communicator, _list: usize, excluded: c_int, out: *mut *mut Communicator, _config: usize, _flags: c_int,
    ) {
        match boxed(parent) {
            Some(parent) => make(out, (parent.ranks - excluded).max(1), parent.rank),
            None => INVALID_VALUE,
        }
    }
    fn ncclCommGrow(
        _parent: usize, ranks: c_int, _id: usize, rank: c_int, out: *mut *mut Communicator, _config: usize,
    ) {
        make(out, ranks, rank)
    }
    fn ncclCommDestroy(communicator: *mut Communicator) { drop_boxed(communicator) }
    fn ncclCommAbort(communicator: *mut Communicator) { drop_boxed(communicator) }
    fn ncclCommGetAsyncError(_communicator: usize, out: *mut c_int) { put(out, SUCCESS); SUCCESS }
    fn ncclCommCount(communicator: *mut Communicator, out: *mut c_int) {
        put(out, boxed(communicator).map_or(1, |c| c.ranks));
        SUCCESS
    }
    fn ncclCommUserRank(communicator: *mut Communicator, out: *mut c_int) {
        put(out, boxed(communicator).map_or(0, |c| c.rank));
        SUCCESS
    }
    fn ncclCommCuDevice(_communicator: usize, out: *mut c_int) {
        put(out, crate::machine::current_ordinal());
        SUCCESS
    }
    fn ncclCommRegister(_communicator: usize, _at: u64, _bytes: usize, out: *mut usize) { put_handle(out) }
    fn ncclCommWindowRegister(_communicator: usize, _at: u64, _bytes: usize, out: *mut usize, _flags: c_int) {
        put_handle(out)
    }
    fn ncclWinGetUserPtr(_communicator: usize, _window: usize, out: *mut u64) { put(out, 0); SUCCESS }
    fn ncclCommMemStats(_communicator: usize, _statistic: c_int, out: *mut u64) { put(out, 0); SUCCESS }
    fn ncclMemAlloc(out: *mut u64, bytes: usize) { runtime::allocate(out, bytes, false) }
    fn ncclMemFree(address: u64) { runtime::release(address) }
    fn ncclRedOpCreatePreMulSum(out: *mut c_int) { put(out, 5); SUCCESS }
    // Access to another rank's memory from a kernel: optional, and refused.
    fn ncclDevCommCreate(_communicator: usize) { UNSUPPORTED }
    fn ncclGetLsaMultimemDevicePointer(_window: usize) { UNSUPPORTED }
    fn ncclGetPeerDevicePointer(_window: usize) { UNSUPPORTED }

    fn ncclAllGather(
        from: u64, to: u64, count: usize, kind: c_int, communicator: *mut Communicator, _stream: usize,
    ) {
        mirror::shared(to, from, count.saturating_mul(element_bytes(kind)), ranks_of(communicator));
        SUCCESS
    }
    fn ncclBroadcast(
        from: u64, to: u64, count: usize, kind: c_int, root: c_int, communicator: *mut Communicator, _stream: usize,
    ) {
        broadcast(from, to, count.saturating_mul(element_bytes(kind)), root, communicator)
    }
    fn ncclBcast(
        at: u64, count: usize, kind: c_int, root: c_int, communicator: *mut Communicator, _stream: usize,
    ) {
        broadcast(at, at, count.saturating_mul(element_bytes(kind)), root, communicator)
    }
}

/// Each rank sees its own value come back, as if all had sent the same.
fn broadcast(
    from: u64,
    to: u64,
    bytes: usize,
    root: c_int,
    communicator: *mut Communicator,
) -> c_int {
    let own = boxed(communicator).is_none_or(|c| c.rank == root);
    if own && from != 0 {
        mirror::shared(to, from, bytes, 1);
    } else {
        mirror::received(to, bytes);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    if code == SUCCESS {
        c"no error".as_ptr()
    } else {
        c"phantom NCCL error".as_ptr()
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetLastError(_communicator: *mut c_void) -> *const c_char {
    c"".as_ptr()
}
