//! What is known about the host side of a run, and how its data is handed over.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// How worker processes come to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartMethod {
    /// Pages are shared until somebody writes to them.
    #[default]
    Fork,
    /// A fresh interpreter, kept from the start, is forked; the dataset is pickled to each worker.
    Forkserver,
    /// A fresh interpreter each; the dataset is pickled to each worker.
    Spawn,
}

impl StartMethod {
    /// The name in Python's `multiprocessing`.
    pub fn name(self) -> &'static str {
        match self {
            StartMethod::Fork => "fork",
            StartMethod::Forkserver => "forkserver",
            StartMethod::Spawn => "spawn",
        }
    }

    /// The inverse of [`name`](StartMethod::name).
    pub fn from_name(name: &str) -> Option<StartMethod> {
        match name {
            "fork" => Some(StartMethod::Fork),
            "forkserver" => Some(StartMethod::Forkserver),
            "spawn" => Some(StartMethod::Spawn),
            _ => None,
        }
    }
}

/// How data is handed to the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipeline {
    pub workers: u64,
    /// Batches that each worker makes ahead.
    pub prefetch: u64,
    pub micro_batch: u64,
    pub start_method: StartMethod,
    pub pin_memory: bool,
    pub persistent_workers: bool,
}

/// What a rehearsal measured on the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// The pipeline as it was rehearsed.
    pub workers: u64,
    pub prefetch: u64,
    /// 0 where it is not known.
    pub micro_batch: u64,
    pub start_method: StartMethod,
    pub pin_memory: bool,
    pub persistent_workers: bool,
    /// Processes on this machine that train together, each with a pipeline of its own.
    pub ranks: u64,
    /// The training uses a card; without one nothing is pinned.
    pub on_gpu: bool,
    /// A fresh interpreter with the script's imports and nothing else: what a worker that is not forked begins with.
    pub imports: Bytes,
    /// What the CUDA libraries take in each process, where the phantom stood in for them.
    pub libraries: Bytes,
    /// Peak of the main process until its first loop over the data.
    pub build_peak: Bytes,
    /// The main process when that loop begins: the dataset is there, workers are not.
    pub main_at_start: Bytes,
    /// What it has more after some steps, between two of them.
    pub training_kept: Bytes,
    /// What a step adds to that at its peak.
    pub training_peak: Bytes,
    /// Bytes of a batch, in tensors.
    pub batch: Bytes,
    /// The same in shared memory, in whole pages, and in pinned memory, in powers of two.
    pub batch_shm: Bytes,
    pub batch_pinned: Bytes,
    /// What the making of a batch takes for a while, besides the batch.
    pub making: Bytes,
    /// Of that, what comes and goes with every sample.
    pub passing: Bytes,
    pub dataset: DatasetFacts,
    /// A worker as it was rehearsed; nothing without workers.
    pub worker: Option<WorkerFacts>,
    /// What saving a checkpoint took for a while; nothing where it was not rehearsed.
    pub checkpoint: Option<Bytes>,
    /// The largest parameter: a save copies those of a card one at a time.
    pub largest_parameter: Bytes,
    /// Another loader, for evaluation.
    pub evaluation: Option<EvaluationFacts>,
}

/// What a dataset is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatasetFacts {
    /// Samples; 0 where it does not say.
    pub samples: u64,
    /// Arrays, tensors and long texts: only read, so that forked processes share them.
    pub buffers: Bytes,
    /// Objects with a reference count.
    pub objects: Bytes,
    /// The same in a worker that is not forked: numbers that were one object become many.
    pub fresh_objects: Bytes,
    /// Arrays that are pickled to such a worker.
    pub arrays: Bytes,
    /// Tensors, which go there through shared memory, in whole pages.
    pub tensors: Bytes,
    /// Of these, those whose old memory stays with the process when they have moved.
    pub heap_tensors: Bytes,
    /// All else that is pickled.
    pub pickled: Bytes,
    /// Of Python's pickle; before 5 an array is copied once more.
    pub protocol: u64,
}

/// One worker, averaged over those that were there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFacts {
    /// Its own memory before its first batch.
    pub private: Bytes,
    /// With what it shares.
    pub all: Bytes,
    /// Peak before its first batch, with what it shares.
    pub start_peak: Bytes,
    /// Pages that it has copied by looking at what it shares, so far.
    pub copied: Bytes,
    /// Samples that it had made by then.
    pub samples: u64,
}

/// A loader beside the one that is trained on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EvaluationFacts {
    pub workers: u64,
    pub prefetch: u64,
    pub batch_shm: Bytes,
    pub persistent_workers: bool,
    /// Its workers were seen beside those of the training, although these are not persistent.
    pub beside: bool,
}
