//! How the memory of a loader is shared between threads and batches.

use brimful::units::Bytes;

use crate::array::Form;
use crate::buffer::PAGE;
use crate::loader::{LoaderError, Settings};

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
    /// Fewer threads before no batch, fewer batches before fewer threads.
    pub(super) fn new(
        forms: &[Form],
        bytes_per_thread: u64,
        kept: u64,
        settings: &Settings,
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
        let threads = settings
            .threads
            .min(usize::try_from(most_threads).unwrap_or(usize::MAX));
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
