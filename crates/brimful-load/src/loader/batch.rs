//! The memory of batches: filled by several threads, handed out, and used again.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::array::TensorSpec;
use crate::buffer::{Buffer, PAGE};
use crate::pipeline::SampleError;

/// A training lets go of its batch just after it has taken the next one. Waiting that long for its memory keeps the
/// number of buffers as it is; fresh ones cost more, and more memory.
const WAIT: Duration = Duration::from_millis(1);

/// One finished batch.
#[derive(Debug)]
pub struct Batch {
    pub fields: Vec<BatchField>,
    pub samples: u64,
    /// Where the epoch goes on after it, for all ranks.
    pub next: u64,
}

/// One field of a batch: an array whose first side counts the samples.
#[derive(Debug)]
pub struct BatchField {
    pub form: TensorSpec,
    pub memory: Lent,
}

/// Memory of a batch in somebody else's hands; it comes back to the loader when they let go of it.
pub struct Lent {
    buffer: Buffer,
    pool: Arc<Pool>,
}

impl Lent {
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.put_back(std::mem::take(&mut self.buffer));
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({:?})", self.buffer)
    }
}

/// Buffers in work and buffers that wait to be used again, together within a bound.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Mutex<Vec<Buffer>>,
    /// Bytes that may be held.
    most: AtomicU64,
    /// Bytes that wait or are in work.
    held: AtomicU64,
    /// Buffers in somebody else's hands.
    lent: AtomicU64,
    /// One of them came back.
    returned: Condvar,
    /// Somebody waited in vain since the last one came back: batches are kept.
    is_kept: AtomicBool,
}

impl Pool {
    pub(super) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn hold_at_most(&self, most: u64) {
        self.most.store(most, Ordering::Relaxed);
        self.make_room(&mut self.lock(), 0);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of buffers that wait until so many bytes more are within the bound.
    fn make_room(&self, free: &mut Vec<Buffer>, bytes: u64) {
        let most = self.most.load(Ordering::Relaxed);
        while self.held().saturating_add(bytes) > most {
            let Some(buffer) = free.pop() else { return };
            self.held
                .fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
        }
    }

    /// A buffer of that length; what it holds is anything. `is_due` says that one is about to come back.
    fn take(&self, len: usize, is_due: bool) -> Buffer {
        let is_it = |buffer: &Buffer| buffer.len() == len;
        let mut free = self.lock();
        if is_due && !self.is_kept.load(Ordering::Relaxed) {
            let waited = self
                .returned
                .wait_timeout_while(free, WAIT, |free| !free.iter().any(is_it))
                .unwrap_or_else(PoisonError::into_inner);
            free = waited.0;
            self.is_kept.store(waited.1.timed_out(), Ordering::Relaxed);
        }
        if let Some(at) = free.iter().position(is_it) {
            return free.swap_remove(at);
        }
        let bytes = len.next_multiple_of(PAGE) as u64;
        self.make_room(&mut free, bytes);
        // Before the lock is gone: else one that comes back meanwhile is held beyond the bound.
        self.held.fetch_add(bytes, Ordering::Relaxed);
        drop(free);
        let buffer = Buffer::zeroed(len);
        debug_assert_eq!(buffer.capacity() as u64, bytes);
        buffer
    }

    /// What was in work and is not needed waits to be used again.
    fn give_up(&self, buffer: Buffer) {
        let mut free = self.lock();
        free.push(buffer);
        self.make_room(&mut free, 0);
    }

    /// What is handed out is not held any more.
    fn lend(&self, buffer: &Buffer) {
        self.held
            .fetch_sub(buffer.capacity() as u64, Ordering::Relaxed);
        self.lent.fetch_add(1, Ordering::Relaxed);
    }

    fn put_back(&self, buffer: Buffer) {
        let mut free = self.lock();
        self.lent.fetch_sub(1, Ordering::Relaxed);
        self.is_kept.store(false, Ordering::Relaxed);
        let bytes = buffer.capacity() as u64;
        if self.held().saturating_add(bytes) <= self.most.load(Ordering::Relaxed) {
            self.held.fetch_add(bytes, Ordering::Relaxed);
            free.push(buffer);
            self.returned.notify_all();
        }
    }
}

/// A batch that threads are filling.
pub(super) struct Work {
    /// Positions of the epoch.
    pub(super) positions: Range<u64>,
    pub(super) next: u64,
    fields: Vec<Column>,
    /// Slots that are not done.
    left: AtomicU64,
    outcome: Mutex<Outcome>,
    pool: Arc<Pool>,
}

/// One field in the making.
struct Column {
    /// Bytes of a sample.
    each: usize,
    /// The beginning of the buffer, which nobody else touches while there is work.
    start: *mut u8,
    buffer: Buffer,
}

#[derive(Debug, Default)]
struct Outcome {
    /// Slots without a sample.
    skipped: Vec<u64>,
    /// The failure of the lowest slot.
    failed: Option<(u64, SampleError)>,
}

// SAFETY: a buffer is reached in two ways only. `slots` gives out disjoint parts of it, each to the one thread that claimed
// the slot (`Epoch` claims a slot once, under its lock); `finished` takes the buffer by value, when no thread has the work
// any more.
#[expect(unsafe_code, reason = "several threads fill one batch")]
unsafe impl Send for Column {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "several threads fill one batch")]
unsafe impl Sync for Column {}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({:?})", self.positions)
    }
}

impl Work {
    pub(super) fn new(
        pool: &Arc<Pool>,
        forms: &[TensorSpec],
        positions: Range<u64>,
        next: u64,
    ) -> Work {
        let samples = positions.end - positions.start;
        let count = usize::try_from(samples).unwrap_or(usize::MAX);
        // Two batches in the training's hands are the old one and the new one.
        let is_due = pool.lent.load(Ordering::Relaxed) > forms.len() as u64;
        Work {
            fields: forms
                .iter()
                .map(|form| {
                    let mut buffer = pool.take(form.bytes().saturating_mul(count), is_due);
                    Column {
                        each: form.bytes(),
                        start: buffer.bytes_mut().as_mut_ptr(),
                        buffer,
                    }
                })
                .collect(),
            positions,
            next,
            left: AtomicU64::new(samples),
            outcome: Mutex::default(),
            pool: Arc::clone(pool),
        }
    }

    pub(super) fn samples(&self) -> u64 {
        self.positions.end - self.positions.start
    }

    /// The memory of one slot, field by field.
    ///
    /// # Safety
    ///
    /// The caller has claimed the slot, nobody else has, and it calls this once.
    #[expect(
        unsafe_code,
        clippy::mut_from_ref,
        reason = "several threads fill one batch"
    )]
    pub(super) unsafe fn slots(&self, slot: u64) -> Vec<&mut [u8]> {
        assert!(slot < self.samples(), "a slot of this batch");
        let slot = usize::try_from(slot).expect("a batch fits into memory");
        self.fields
            .iter()
            .map(|column| {
                // SAFETY: the buffer holds `samples` times `each` bytes and stays where it is while there is work; parts
                // of different slots do not overlap, and this one is the caller's.
                unsafe {
                    let start = column.start.add(slot * column.each);
                    std::slice::from_raw_parts_mut(start, column.each)
                }
            })
            .collect()
    }

    pub(super) fn skip(&self, slot: u64) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.skipped.push(slot);
    }

    pub(super) fn fail(&self, slot: u64, error: SampleError) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome
            .failed
            .as_ref()
            .is_none_or(|(first, _)| slot < *first)
        {
            outcome.failed = Some((slot, error));
        }
    }

    /// Whether these were the last slots. Said under the lock of the epoch, by a thread that lets go of the work at once.
    pub(super) fn done(&self, slots: u64) -> bool {
        self.left.fetch_sub(slots, Ordering::AcqRel) == slots
    }

    pub(super) fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// The batch, or the failure of one of its samples. Only when it is done.
    pub(super) fn finished(mut self, forms: &[TensorSpec]) -> Result<Batch, SampleError> {
        let outcome = self
            .outcome
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let outcome = std::mem::take(outcome);
        let buffers = self.fields.drain(..).map(|column| {
            self.pool.lend(&column.buffer);
            let memory = Lent {
                buffer: column.buffer,
                pool: Arc::clone(&self.pool),
            };
            (column.each, memory)
        });
        if let Some((_, error)) = outcome.failed {
            buffers.for_each(drop);
            return Err(error);
        }
        let count = self.positions.end - self.positions.start;
        let samples = count - outcome.skipped.len() as u64;
        let fields = buffers
            .zip(forms)
            .map(|((each, mut memory), form)| {
                close_up(memory.bytes_mut(), each, count, &outcome.skipped);
                let mut shape = vec![usize::try_from(samples).expect("fits into memory")];
                shape.extend_from_slice(form.shape());
                BatchField {
                    form: TensorSpec::new(form.dtype(), shape).expect("its memory is there"),
                    memory,
                }
            })
            .collect();
        Ok(Batch {
            fields,
            samples,
            next: self.next,
        })
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        for column in self.fields.drain(..) {
            self.pool.give_up(column.buffer);
        }
    }
}

/// Moves samples down over those that were left out.
fn close_up(bytes: &mut [u8], each: usize, count: u64, skipped: &[u64]) {
    if skipped.is_empty() {
        return;
    }
    let mut to = 0;
    for from in 0..count {
        if skipped.contains(&from) {
            continue;
        }
        let from = usize::try_from(from).expect("fits into memory") * each;
        bytes.copy_within(from..from + each, to);
        to += each;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(pool: &Arc<Pool>, buffer: Buffer) -> Lent {
        pool.lend(&buffer);
        Lent {
            buffer,
            pool: Arc::clone(pool),
        }
    }

    #[test]
    fn memory_that_is_due_is_waited_for_until_it_is_seen_to_be_kept() {
        let pool = Arc::new(Pool::default());
        pool.hold_at_most(PAGE as u64);
        let old = lent(&pool, pool.take(PAGE, false));
        let new = lent(&pool, pool.take(PAGE, false));

        let address = old.bytes().as_ptr().addr();
        drop(old);
        let next = lent(&pool, pool.take(PAGE, true));
        assert_eq!(next.bytes().as_ptr().addr(), address, "used again");

        let kept = [next, new, lent(&pool, pool.take(PAGE, true))];
        assert!(
            pool.is_kept.load(Ordering::Relaxed),
            "nobody waits a second time"
        );
        drop(kept);
        assert!(!pool.is_kept.load(Ordering::Relaxed));
        assert_eq!(pool.held(), PAGE as u64, "no more than is allowed");
    }
}
