//! The host's part of a prediction.

use brimful::predict::host::{HostFacts, HostNeed, Pipeline, StartMethod, host_need};
use schemars::JsonSchema;
use serde::Serialize;

use crate::json::range::LikelyAndSafe;

/// Workers for which the table has a row.
const WORKERS: [u64; 4] = [0, 1, 2, 4];

/// Predicted host memory of a training: anonymous and shared memory of all of its processes together.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PredictedHost {
    /// Worker processes of the DataLoader, as rehearsed.
    pub workers: u64,
    /// Batches that each worker makes ahead (`prefetch_factor`), as rehearsed.
    pub prefetch: u64,
    /// Samples of a batch, as rehearsed.
    pub micro_batch: u64,
    /// `fork`, `forkserver` or `spawn`, as rehearsed.
    pub start_method: String,
    /// Whether batches are pinned for a card, as rehearsed.
    pub pin_memory: bool,
    /// Whether workers stay from one epoch to the next, as rehearsed.
    pub persistent_workers: bool,
    /// The highest use.
    pub bytes: LikelyAndSafe,
    /// Of these, what lies in `/dev/shm`.
    pub shm_bytes: LikelyAndSafe,
    /// What the memory is for at the fullest moment.
    pub terms: Vec<HostBudgetTerm>,
    /// The same training with other workers and other start methods; all else as rehearsed.
    pub by_workers: Vec<HostByWorkers>,
}

/// One line of the host's budget.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostBudgetTerm {
    /// `program`, `dataset`, `training`, `worker_programs`, `worker_copies`, `making_batches`, `pickle_buffer`,
    /// `batches`, `pinned` or `checkpoint`.
    pub name: String,
    /// The most likely bytes.
    pub likely_bytes: u64,
    /// The same with the uncertainty that belongs to this term.
    pub safe_bytes: u64,
    /// Why it is charged like this, where that needs a word.
    pub reason: Option<String>,
}

/// The host's need with other workers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostByWorkers {
    /// `fork`, `forkserver` or `spawn`.
    pub start_method: String,
    /// Worker processes of the DataLoader.
    pub workers: u64,
    /// The highest use.
    pub bytes: LikelyAndSafe,
    /// Of these, what lies in `/dev/shm`.
    pub shm_bytes: LikelyAndSafe,
}

impl PredictedHost {
    /// The need of the pipeline as it was rehearsed, and a table around it.
    pub fn of(facts: &HostFacts) -> PredictedHost {
        let own = own_pipeline(facts);
        let need = host_need(facts, &own);
        let methods = [
            StartMethod::Fork,
            StartMethod::Forkserver,
            StartMethod::Spawn,
        ];
        let by_workers = methods
            .iter()
            .flat_map(|method| rows(facts, *method))
            .collect();
        PredictedHost {
            workers: facts.workers,
            prefetch: facts.prefetch,
            micro_batch: facts.micro_batch,
            start_method: facts.start_method.name().into(),
            pin_memory: facts.pin_memory,
            persistent_workers: facts.persistent_workers,
            bytes: bytes(&need),
            shm_bytes: shm_bytes(&need),
            terms: need
                .terms
                .iter()
                .map(|term| HostBudgetTerm {
                    name: term.id.name().to_owned(),
                    likely_bytes: term.likely.get(),
                    safe_bytes: term.safe.get(),
                    reason: term.reason.clone(),
                })
                .collect(),
            by_workers,
        }
    }

    /// The rows of the table for the job's own start method.
    pub(crate) fn own_rows(&self) -> impl Iterator<Item = &HostByWorkers> {
        self.by_workers
            .iter()
            .filter(|row| row.start_method == self.start_method)
    }
}

fn own_pipeline(facts: &HostFacts) -> Pipeline {
    Pipeline {
        workers: facts.workers,
        // Where there are no workers nobody has said how many; two is the default of PyTorch.
        prefetch: if facts.prefetch == 0 {
            2
        } else {
            facts.prefetch
        },
        micro_batch: facts.micro_batch,
        start_method: facts.start_method,
        pin_memory: facts.pin_memory,
        persistent_workers: facts.persistent_workers,
    }
}

fn rows(facts: &HostFacts, method: StartMethod) -> impl Iterator<Item = HostByWorkers> {
    WORKERS.iter().map(move |workers| {
        let pipeline = Pipeline {
            workers: *workers,
            start_method: method,
            ..own_pipeline(facts)
        };
        let need = host_need(facts, &pipeline);
        HostByWorkers {
            start_method: method.name().into(),
            workers: *workers,
            bytes: bytes(&need),
            shm_bytes: shm_bytes(&need),
        }
    })
}

fn bytes(need: &HostNeed) -> LikelyAndSafe {
    LikelyAndSafe {
        likely: need.likely.get(),
        safe: need.safe.get(),
    }
}

fn shm_bytes(need: &HostNeed) -> LikelyAndSafe {
    LikelyAndSafe {
        likely: need.shm_likely.get(),
        safe: need.shm_safe.get(),
    }
}
