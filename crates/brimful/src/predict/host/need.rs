//! What the host side of a run needs, term by term.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Predicted bytes of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNeed {
    /// Peak of the anonymous and shared memory of all processes together.
    pub likely: Bytes,
    pub safe: Bytes,
    /// Of these, what lies in `/dev/shm`.
    pub shm_likely: Bytes,
    pub shm_safe: Bytes,
    /// What the total is made of at the fullest moment.
    pub terms: Vec<HostTerm>,
}

/// One line of the host's budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTerm {
    pub id: HostTermId,
    pub likely: Bytes,
    pub safe: Bytes,
    /// Why it is charged like this, where that needs a word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Which part of the host's memory a [`HostTerm`] covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostTermId {
    /// The main process and its libraries.
    #[default]
    Program,
    /// The dataset in the main process.
    Dataset,
    /// What training keeps and needs for a while.
    Training,
    /// The interpreters of the workers.
    WorkerPrograms,
    /// Copies of the dataset in the workers.
    WorkerCopies,
    /// What making a batch needs for a while.
    MakingBatches,
    /// The buffer in which a dataset is pickled to a worker.
    PickleBuffer,
    /// Batches that wait for the training process.
    Batches,
    /// Batches in pinned memory.
    Pinned,
    /// What saving a checkpoint needs for a while.
    Checkpoint,
}

impl HostTermId {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            HostTermId::Program => "program",
            HostTermId::Dataset => "dataset",
            HostTermId::Training => "training",
            HostTermId::WorkerPrograms => "worker_programs",
            HostTermId::WorkerCopies => "worker_copies",
            HostTermId::MakingBatches => "making_batches",
            HostTermId::PickleBuffer => "pickle_buffer",
            HostTermId::Batches => "batches",
            HostTermId::Pinned => "pinned",
            HostTermId::Checkpoint => "checkpoint",
        }
    }
}
