//! The scratch buffers of one epoch, where threads share them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::loader::statistics::{Counters, change};
use crate::pipeline::OpScratch;

/// Those that nobody is at. The one that was used last is taken first, so that no more are filled than are needed.
#[derive(Debug)]
pub(super) struct OpScratchPool {
    free: Mutex<Vec<Counted>>,
    /// Somebody waits for one.
    freed: Condvar,
}

/// Scratch memory, and what of it is counted as held.
#[derive(Debug, Default)]
struct Counted {
    op_scratch: OpScratch,
    bytes: u64,
}

impl OpScratchPool {
    pub(super) fn new(count: usize) -> OpScratchPool {
        OpScratchPool {
            free: Mutex::new((0..count).map(|_| Counted::default()).collect()),
            freed: Condvar::new(),
        }
    }

    /// Waits for one, and tells how long.
    pub(super) fn take<'a>(&'a self, counters: &'a Counters) -> (PooledScratch<'a>, Duration) {
        let mut free = self.lock();
        let mut waited = Duration::ZERO;
        if free.is_empty() {
            let began = Instant::now();
            let wait = self.freed.wait_while(free, |free| free.is_empty());
            free = wait.unwrap_or_else(PoisonError::into_inner);
            waited = began.elapsed();
        }
        let taken = PooledScratch {
            all: self,
            counters,
            counted: free.pop().unwrap_or_default(),
        };
        (taken, waited)
    }

    /// Gives up the memory of all, when nobody is at them any more.
    pub(super) fn clear(&self, counters: &Counters) {
        for counted in self.lock().drain(..) {
            change(&counters.read_scratch, counted.bytes, 0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Counted>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A workbench that is free again when this is dropped.
#[derive(Debug)]
pub(super) struct PooledScratch<'a> {
    all: &'a OpScratchPool,
    counters: &'a Counters,
    counted: Counted,
}

impl PooledScratch<'_> {
    pub(super) fn op_scratch(&mut self) -> &mut OpScratch {
        &mut self.counted.op_scratch
    }
}

impl Drop for PooledScratch<'_> {
    fn drop(&mut self) {
        let mut counted = std::mem::take(&mut self.counted);
        if std::thread::panicking() {
            // Nobody knows what is on it.
            counted.op_scratch = OpScratch::default();
        }
        let now = counted.op_scratch.held_bytes() as u64;
        change(&self.counters.read_scratch, counted.bytes, now);
        counted.bytes = now;
        self.all.lock().push(counted);
        self.all.freed.notify_one();
    }
}
