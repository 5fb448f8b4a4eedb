//! The host's part of a prediction.

use brimful::predict::host::{HostFacts, HostNeed, Pipeline, StartMethod, host_need};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::range::LikelyAndSafe;

/// Workers for which the table has a row.
const WORKERS: [u64; 4] = [0, 1, 2, 4];

/// Predicted host memory: anonymous and shared memory of all processes of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedHost {
    /// Number of DataLoader workers, as rehearsed.
    pub workers: u64,
    /// Batches that each worker prefetches (`prefetch_factor`), as rehearsed.
    pub prefetch: u64,
    /// Batch size, as rehearsed.
    pub micro_batch: u64,
    /// `fork`, `forkserver` or `spawn`, as rehearsed.
    pub start_method: String,
    /// Whether batches are in pinned memory, as rehearsed.
    pub pin_memory: bool,
    /// Whether workers persist between epochs, as rehearsed.
    pub persistent_workers: bool,
    /// Peak host memory.
    pub bytes: LikelyAndSafe,
    /// The part of it in `/dev/shm`.
    pub shm_bytes: LikelyAndSafe,
    /// Memory by use at the peak.
    pub terms: Vec<HostBudgetTerm>,
    /// Predictions for other numbers of workers and start methods; everything else as rehearsed.
    pub by_workers: Vec<HostByWorkers>,
}

/// One use of host memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostBudgetTerm {
    /// `program`, `dataset`, `training`, `worker_programs`, `worker_copies`, `making_batches`, `pickle_buffer`,
    /// `batches`, `pinned` or `checkpoint`.
    pub name: String,
    /// The likely value in bytes.
    pub likely_bytes: u64,
    /// The safe value, which includes the uncertainty of this term.
    pub safe_bytes: u64,
    /// An explanation, if there is one.
    pub reason: Option<String>,
}

/// Host memory with another number of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostByWorkers {
    /// `fork`, `forkserver` or `spawn`.
    pub start_method: String,
    /// Number of DataLoader workers.
    pub workers: u64,
    /// Peak host memory.
    pub bytes: LikelyAndSafe,
    /// The part of it in `/dev/shm`.
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
