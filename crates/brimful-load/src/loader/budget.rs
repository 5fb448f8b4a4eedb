//! How the memory of a loader is shared between threads and batches.

use brimful::units::Bytes;

use crate::array::Form;
use crate::buffer::PAGE;
use crate::loader::{LoaderError, Settings};
use crate::reading::Access;

/// Requests to an object store that are under way at once, where memory allows.
const REQUESTS: usize = 16;

/// What fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    pub threads: usize,
    /// Batches in the making or ready at once.
    pub batches: u64,
    pub batch: Bytes,
    /// What a thread holds at the most.
    pub thread: Bytes,
    /// What the source keeps from sample to sample.
    pub kept: Bytes,
}

impl Budget {
    /// With as many threads as are asked for, or as many as keep the processors busy: those that read from a disk or a
    /// store wait half of their time or more. They are not worth the second batch.
    pub(super) fn new(
        forms: &[Form],
        bytes_per_thread: u64,
        kept: u64,
        settings: &Settings,
        access: Access,
        processors: usize,
    ) -> Result<Budget, LoaderError> {
        let with = |threads| Budget::with_threads(forms, bytes_per_thread, kept, settings, threads);
        if let Some(threads) = settings.threads {
            return with(threads);
        }
        let fewer = with(processors)?;
        let more = with(match access {
            Access::Mapped => processors,
            Access::Read | Access::Direct => 2 * processors,
            Access::Remote => (2 * processors).max(REQUESTS),
        })?;
        Ok(if more.batches >= fewer.batches.min(2) {
            more
        } else {
            fewer
        })
    }

    /// Fewer threads before no batch, fewer batches before fewer threads.
    fn with_threads(
        forms: &[Form],
        bytes_per_thread: u64,
        kept: u64,
        settings: &Settings,
        threads: usize,
    ) -> Result<Budget, LoaderError> {
        let batch = forms.iter().fold(0_u64, |sum, form| {
            let field = settings
                .batch_size
                .saturating_mul(form.bytes() as u64)
                .checked_next_multiple_of(PAGE as u64)
                .unwrap_or(u64::MAX);
            sum.saturating_add(field)
        });
        let memory = settings.memory.get();
        let needed = batch.saturating_add(bytes_per_thread).saturating_add(kept);
        if needed > memory {
            return Err(LoaderError::TooLittleMemory {
                batch: Bytes(batch),
                thread: Bytes(bytes_per_thread),
                kept: Bytes(kept),
                needed: Bytes(needed),
                memory: settings.memory,
            });
        }
        let memory = memory - kept;
        let most_threads = (memory - batch) / bytes_per_thread.max(1);
        let threads = threads.min(usize::try_from(most_threads).unwrap_or(usize::MAX));
        let left = memory - bytes_per_thread * threads as u64;
        let batches = (left / batch.max(1)).clamp(1, settings.prefetch.max(1));
        Ok(Budget {
            threads,
            batches,
            batch: Bytes(batch),
            thread: Bytes(bytes_per_thread),
            kept: Bytes(kept),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::DType;
    use crate::loader::OnError;

    fn threads_and_batches(
        access: Access,
        memory: u64,
        bytes_per_thread: u64,
        threads: Option<usize>,
    ) -> (usize, u64) {
        let settings = Settings {
            batch_size: 8,
            shuffle_seed: None,
            seed: 0,
            memory: Bytes(memory),
            threads,
            prefetch: 4,
            rank: 0,
            world_size: 1,
            drop_last: false,
            on_error: OnError::Raise,
        };
        let forms = [Form::new(DType::U8, vec![1 << 20]).unwrap()];
        let budget = Budget::new(&forms, bytes_per_thread, 0, &settings, access, 4).unwrap();
        assert!(budget.batch.get() * budget.batches <= memory);
        (budget.threads, budget.batches)
    }

    #[test]
    fn threads_that_wait_are_more_unless_batches_go_for_them() {
        let mib = 1 << 20;
        let roomy = |access| threads_and_batches(access, 512 * mib, mib, None);
        assert_eq!(roomy(Access::Mapped), (4, 4));
        assert_eq!(roomy(Access::Direct), (8, 4));
        assert_eq!(roomy(Access::Remote), (16, 4));
        // Batches of 8 MiB in 64: eight threads of 5 MiB would leave room for 3 of them, of 7 MiB for one.
        let tight = |each| threads_and_batches(Access::Direct, 64 * mib, each * mib, None);
        assert_eq!(tight(5), (8, 3));
        assert_eq!(tight(7), (4, 4));
        // Where the processors' own threads leave room for one only, nothing is lost.
        assert_eq!(tight(13), (4, 1));
        assert_eq!(
            threads_and_batches(Access::Remote, 512 * mib, mib, Some(3)),
            (3, 4)
        );
    }
}
