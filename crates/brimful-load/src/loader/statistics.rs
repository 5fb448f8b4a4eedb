//! Where the time goes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::pipeline::SampleError;

/// Of samples that were left out, so many are told.
const MAX_TOLD: usize = 20;

/// What a loader has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Handed out.
    pub batches: u64,
    pub samples: u64,
    /// Samples left out since they could not be read or transformed.
    pub skipped: u64,
    /// How long the training waited for batches.
    pub waited: Duration,
    /// How long threads worked, summed over them.
    pub worked: Duration,
    /// How long threads waited for room, summed over them.
    pub idle: Duration,
    /// How long threads spent in each stage of the pipeline, summed over them; the last is the wait for scratch memory, where
    /// they share some.
    pub stages: Vec<(String, Duration)>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) batches: AtomicU64,
    pub(super) samples: AtomicU64,
    skipped: AtomicU64,
    pub(super) waited_ns: AtomicU64,
    pub(super) worked_ns: AtomicU64,
    pub(super) idle_ns: AtomicU64,
    /// Of waiting for scratch memory.
    pub(super) scratch_wait_ns: AtomicU64,
    /// The first samples that were left out.
    told: Mutex<Vec<Arc<SampleError>>>,
    /// Of each stage of the pipeline.
    pub(super) stages_ns: Box<[AtomicU64]>,
    /// Bytes that threads hold.
    pub(super) read_scratch: AtomicU64,
}

pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Counts `to` instead of `from`, in one step: nobody sees both.
pub(super) fn change(counter: &AtomicU64, from: u64, to: u64) {
    counter.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
}

pub(super) fn add_time(counter: &AtomicU64, time: Duration) {
    add(counter, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

impl Counters {
    pub(super) fn of_stages(n_stages: usize) -> Counters {
        Counters {
            stages_ns: (0..n_stages).map(|_| AtomicU64::new(0)).collect(),
            ..Counters::default()
        }
    }

    pub(super) fn skip(&self, error: SampleError) {
        add(&self.skipped, 1);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_TOLD {
            told.push(Arc::new(error));
        }
    }

    pub(super) fn told(&self) -> Vec<Arc<SampleError>> {
        self.told
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn read_scratch(&self) -> u64 {
        self.read_scratch.load(Ordering::Relaxed)
    }

    pub(super) fn statistics(&self, stages: Vec<String>, shares_scratch: bool) -> Statistics {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let time = |counter: &AtomicU64| Duration::from_nanos(number(counter));
        let mut stages: Vec<(String, Duration)> = stages
            .into_iter()
            .zip(self.stages_ns.iter().map(time))
            .collect();
        if shares_scratch && !stages.is_empty() {
            stages.push((
                "wait for scratch memory".to_owned(),
                time(&self.scratch_wait_ns),
            ));
        }
        Statistics {
            batches: number(&self.batches),
            samples: number(&self.samples),
            skipped: number(&self.skipped),
            waited: time(&self.waited_ns),
            worked: time(&self.worked_ns),
            idle: time(&self.idle_ns),
            stages,
        }
    }
}
