//! How the memory of a loader is shared between threads and batches.

use brimful::units::Bytes;

use crate::array::TensorSpec;
use crate::buffer::PAGE;
use crate::loader::{LoaderError, LoaderSettings};
use crate::reading::Access;

/// Requests to an object store that are under way at once, where memory allows.
const REQUESTS: usize = 32;

/// What fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub threads: usize,
    /// Threads that are past reading at once.
    pub op_scratches: usize,
    /// Batches in the making or ready at once.
    pub batches: u64,
    pub batch: Bytes,
    /// What a thread holds at the most of what it has read.
    pub thread: Bytes,
    /// What the ops of one sample need at the most besides.
    pub op_scratch: Bytes,
    /// What the source keeps from sample to sample.
    pub kept: Bytes,
}

/// What one of each takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) thread: u64,
    pub(super) op_scratch: u64,
    pub(super) kept: u64,
}

impl Budget {
    /// With as many threads as are asked for, or as many as keep the processors busy: those that read from a disk or a
    /// store wait half of their time or more. They are not worth the second batch.
    pub(super) fn new(
        forms: &[TensorSpec],
        needs: Needs,
        settings: &LoaderSettings,
        access: Access,
        processors: usize,
    ) -> Result<Budget, LoaderError> {
        let batch = forms.iter().fold(0_u64, |sum, form| {
            let field = settings
                .batch_size
                .saturating_mul(form.bytes() as u64)
                .checked_next_multiple_of(PAGE as u64)
                .unwrap_or(u64::MAX);
            sum.saturating_add(field)
        });
        let Needs {
            thread,
            op_scratch,
            kept,
        } = needs;
        let one = thread.saturating_add(op_scratch);
        let needed = batch.saturating_add(one).saturating_add(kept);
        let Some(left) = settings.memory.get().checked_sub(needed) else {
            return Err(LoaderError::TooLittleMemory {
                batch: Bytes(batch),
                thread: Bytes(one),
                kept: Bytes(kept),
                needed: Bytes(needed),
                memory: settings.memory,
            });
        };
        let (busy, threads) = match (settings.threads, access) {
            (Some(asked), _) => (asked, asked),
            (None, Access::Mapped) => (processors, processors),
            (None, Access::Read | Access::Direct) => (processors, 2 * processors),
            (None, Access::Remote) => (processors, (2 * processors).max(REQUESTS)),
        };
        let (busy, threads) = (busy as u64, threads as u64);
        let batches = settings.prefetch.max(1);
        // One of each is paid for; of the rest, what is worth most comes first.
        let mut remaining = Remaining { left };
        let mut n_threads = 1 + remaining.take(one, busy - 1);
        let mut n_workbenches = n_threads;
        let mut n_batches = 1 + remaining.take(batch, batches.min(2) - 1);
        n_threads += remaining.take(thread, threads - n_threads);
        // There is no use in more at once past reading, unless they are asked for.
        let max_op_scratches = (2 * processors as u64).max(busy).min(n_threads);
        n_workbenches += remaining.take(op_scratch, max_op_scratches - n_workbenches);
        n_batches += remaining.take(batch, batches - n_batches);
        let count = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Budget {
            threads: count(n_threads),
            op_scratches: count(n_workbenches),
            batches: n_batches,
            batch: Bytes(batch),
            thread: Bytes(thread),
            op_scratch: Bytes(op_scratch),
            kept: Bytes(kept),
        })
    }
}

/// Bytes to be given away.
struct Remaining {
    left: u64,
}

impl Remaining {
    /// So many as are wanted, or as fit.
    fn take(&mut self, each: u64, wanted: u64) -> u64 {
        let taken = self
            .left
            .checked_div(each)
            .map_or(wanted, |fit| fit.min(wanted));
        self.left -= each * taken;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::DType;
    use crate::loader::OnError;

    const MIB: u64 = 1 << 20;

    /// Of 4 CPUs and batches of 8 MiB, with needs in MiB: threads, scratch buffers, batches.
    fn check(
        access: Access,
        memory: u64,
        needs: (u64, u64),
        threads: Option<usize>,
        expected: (usize, usize, u64),
    ) {
        let settings = LoaderSettings {
            batch_size: 8,
            shuffle_seed: None,
            seed: 0,
            memory: Bytes(memory * MIB),
            threads,
            prefetch: 4,
            rank: 0,
            world_size: 1,
            drop_last: false,
            on_error: OnError::Raise,
        };
        let forms = [TensorSpec::new(DType::U8, vec![1 << 20]).unwrap()];
        let needs = Needs {
            thread: needs.0 * MIB,
            op_scratch: needs.1 * MIB,
            kept: 0,
        };
        let budget = Budget::new(&forms, needs, &settings, access, 4).unwrap();
        let found = (budget.threads, budget.op_scratches, budget.batches);
        assert_eq!(found, expected, "{memory} MiB, {needs:?}");
        let held = budget.batch.get() * budget.batches
            + budget.thread.get() * budget.threads as u64
            + budget.op_scratch.get() * budget.op_scratches as u64;
        assert!(held <= memory * MIB);
    }

    #[test]
    fn threads_that_wait_are_more() {
        check(Access::Mapped, 512, (1, 0), None, (4, 4, 4));
        check(Access::Direct, 512, (1, 0), None, (8, 8, 4));
        check(Access::Remote, 512, (1, 1), None, (32, 8, 4));
        check(Access::Remote, 512, (1, 1), Some(3), (3, 3, 4));
        check(Access::Direct, 512, (1, 1), Some(20), (20, 20, 4));
    }

    #[test]
    fn two_batches_are_worth_more_than_threads_that_wait() {
        let check = |each, expected| check(Access::Direct, 64, (each, 0), None, expected);
        check(5, (8, 8, 3));
        check(7, (6, 6, 2));
        check(12, (4, 4, 2));
        // A thread for each processor is worth more than the second batch.
        check(13, (4, 4, 1));
        check(20, (2, 2, 3));
    }

    #[test]
    fn many_read_where_few_can_work_on_it() {
        check(Access::Remote, 512, (1, 220), None, (32, 2, 4));
        check(Access::Remote, 256, (1, 220), None, (20, 1, 2));
        check(Access::Remote, 256, (1, 220), Some(10), (10, 1, 3));
        check(Access::Direct, 512, (1, 220), None, (8, 2, 4));
        // One of each is all there is.
        check(Access::Remote, 229, (1, 220), None, (1, 1, 1));
    }

    #[test]
    fn what_takes_nothing_is_never_short() {
        check(Access::Mapped, 8, (0, 0), Some(1000), (1000, 1000, 1));
    }
}
