//! The few values that survive a round trip through collectives.
//!
//! Device memory has no contents, and a copy from it gives zeros. That is right for losses and masks, but
//! before the first step `DistributedDataParallel` sends the number and the shapes of its parameters through
//! the other ranks and compares what comes back. So a small copy to a device is remembered; a collective
//! passes it on as if every rank had sent the same; and what came out of a collective can be read. It is
//! forgotten after [`LAUNCHES`] further kernel launches, any of which may have overwritten it. What the host
//! itself has sent can be read back only as long as no kernel has been launched at all: Accelerate sends the
//! shape of a batch to the device and takes it back.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi::lock;
use crate::memory::is_device;
use crate::report;

/// The longest copy remembered: the shapes of a few thousand parameters.
const MAX_BYTES: usize = 256 << 10;
/// The most copies remembered at a time.
const MAX_ENTRIES: usize = 64;
/// How many kernel launches a value outlives.
const LAUNCHES: u64 = 64;

static NUMBER: AtomicU64 = AtomicU64::new(0);
static VALUES: Mutex<BTreeMap<u64, Value>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Clone)]
struct Value {
    bytes: Vec<u8>,
    /// Kernels launched when it was stored.
    born: u64,
    /// Which of all values it was.
    number: u64,
    /// Whether it came out of a collective, so that reading it is meant.
    shared: bool,
    /// Whether no kernel had been launched between the host's sending it and `born`.
    untouched: bool,
}

/// What is remembered for a range.
struct Found {
    bytes: Vec<u8>,
    shared: bool,
    /// No kernel has been launched since the host sent it.
    untouched: bool,
}

fn store(at: u64, bytes: Vec<u8>, shared: bool, untouched: bool) {
    let born = report::KERNELS.load(Ordering::Relaxed);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut values = lock(&VALUES);
    values.retain(|_, value| born.saturating_sub(value.born) <= LAUNCHES);
    if values.len() < MAX_ENTRIES {
        values.insert(
            at,
            Value {
                bytes,
                born,
                number,
                shared,
                untouched,
            },
        );
    }
}

/// The bytes remembered for a range, which may lie inside a longer one.
fn find(at: u64, bytes: usize) -> Option<Found> {
    let now = report::KERNELS.load(Ordering::Relaxed);
    let values = lock(&VALUES);
    let (start, value) = values.range(..=at).next_back()?;
    let from = usize::try_from(at - start).ok()?;
    let part = value.bytes.get(from..from.checked_add(bytes)?)?;
    (now.saturating_sub(value.born) <= LAUNCHES).then(|| Found {
        bytes: part.to_vec(),
        shared: value.shared,
        untouched: value.untouched && now == value.born,
    })
}

/// The host sent bytes to a device.
pub(crate) fn sent(to: u64, from: u64, bytes: usize) {
    forget(to, bytes);
    if bytes <= MAX_BYTES && from != 0 {
        // SAFETY: the source of a copy from host memory is readable for its length.
        let copy = unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.to_vec();
        store(to, copy, false, true);
    }
}

/// A device-to-device copy.
pub(crate) fn copied(to: u64, from: u64, bytes: usize) {
    let found = if bytes <= MAX_BYTES {
        find(from, bytes)
    } else {
        None
    };
    if to != from {
        forget(to, bytes);
    }
    if let Some(found) = found {
        store(to, found.bytes, found.shared, found.untouched);
    }
}

/// A collective that leaves one rank's bytes in `copies` consecutive places.
pub(crate) fn shared(to: u64, from: u64, bytes: usize, copies: usize) {
    if !is_device(to) {
        return;
    }
    let total = bytes.saturating_mul(copies);
    let found = if total <= MAX_BYTES {
        find(from, bytes)
    } else {
        None
    };
    forget(to, total);
    if let Some(found) = found {
        store(to, found.bytes.repeat(copies), true, false);
    }
}

/// A broadcast by another rank: if this one has sent nothing from here, its latest value of the same length
/// stands for what the other sent. An all-gather may be made of such broadcasts.
pub(crate) fn received(at: u64, bytes: usize) {
    if !is_device(at) {
        return;
    }
    if bytes > MAX_BYTES || find(at, bytes).is_some() {
        return shared(at, at, bytes, 1);
    }
    let now = report::KERNELS.load(Ordering::Relaxed);
    let latest = lock(&VALUES)
        .values()
        .filter(|value| value.bytes.len() == bytes && !value.shared)
        .filter(|value| now.saturating_sub(value.born) <= LAUNCHES)
        .max_by_key(|value| value.number)
        .map(|value| value.bytes.clone());
    forget(at, bytes);
    if let Some(bytes) = latest {
        store(at, bytes, true, false);
    }
}

/// The host reads from a device, into memory already zeroed.
pub(crate) fn read(to: u64, from: u64, bytes: usize) {
    let found = find(from, bytes).filter(|found| found.shared || found.untouched);
    if let Some(Found { bytes: value, .. }) = found {
        // SAFETY: the target of a copy to host memory is writable for its length, which is that of `value`.
        unsafe { (to as *mut u8).copy_from_nonoverlapping(value.as_ptr(), value.len()) };
    }
}

/// Something else was written over a range.
pub(crate) fn forget(at: u64, bytes: usize) {
    let end = at.saturating_add(bytes as u64);
    lock(&VALUES).retain(|start, value| start + value.bytes.len() as u64 <= at || *start >= end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_collective_shared_can_be_read() {
        let device = 0x1000_0000_0000;
        let sent_bytes = [1_u8, 2, 3, 4];
        let mut got = [0_u8; 4];
        sent(device, sent_bytes.as_ptr() as u64, 4);
        report::KERNELS.fetch_add(1, Ordering::Relaxed);
        read(got.as_mut_ptr() as u64, device, 4);
        assert_eq!(got, [0; 4], "a kernel may have written here");
        shared(device + 64, device, 4, 2);
        read(got.as_mut_ptr() as u64, device + 68, 4);
        assert_eq!(got, [1, 2, 3, 4]);
        forget(device + 64, 1);
        let mut got = [0_u8; 4];
        read(got.as_mut_ptr() as u64, device + 68, 4);
        assert_eq!(got, [0; 4]);
    }
}
