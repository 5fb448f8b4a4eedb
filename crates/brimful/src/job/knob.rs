//! Settings that may change, and which of them change the result of a training.

use serde::{Deserialize, Serialize};

use crate::job::value::Value;

/// A setting that may change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knob {
    pub name: String,
    pub choices: Choices,
}

/// What a knob may be set to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Choices {
    /// Whatever fits best.
    Auto,
    /// First what is wanted, then what is accepted.
    Listed(Vec<Value>),
}

/// Whether a knob changes the result of the training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Science {
    Same,
    Other,
}

/// The names of knobs that brimful knows, all of the same science. Every other name is other science.
pub mod knobs {
    /// Samples that go through the model at once.
    pub const MICRO_BATCH: &str = "micro_batch";
    /// Micro-batches per optimizer step; follows from the effective batch.
    pub const ACCUMULATION: &str = "accumulation";
    /// Worker processes of each DataLoader.
    pub const WORKERS: &str = "workers";
    /// Batches that each worker makes ahead (`prefetch_factor`).
    pub const PREFETCH: &str = "prefetch";
    pub const PIN_MEMORY: &str = "pin_memory";
    pub const PERSISTENT_WORKERS: &str = "persistent_workers";
    /// `fork`, `forkserver` or `spawn`.
    pub const START_METHOD: &str = "start_method";
    pub const ACTIVATION_CHECKPOINTING: &str = "activation_checkpointing";
    pub const COMPILE: &str = "compile";
    /// `PYTORCH_CUDA_ALLOC_CONF`.
    pub const ALLOCATOR: &str = "allocator";
    /// Samples of an evaluation batch.
    pub const EVAL_BATCH: &str = "eval_batch";

    /// All of them.
    pub const SAME_SCIENCE: [&str; 11] = [
        MICRO_BATCH,
        ACCUMULATION,
        WORKERS,
        PREFETCH,
        PIN_MEMORY,
        PERSISTENT_WORKERS,
        START_METHOD,
        ACTIVATION_CHECKPOINTING,
        COMPILE,
        ALLOCATOR,
        EVAL_BATCH,
    ];

    /// Those that only change how data is handed over or where it lies: their bytes follow from one rehearsal.
    pub const COMPUTED: [&str; 7] = [
        ACCUMULATION,
        WORKERS,
        PREFETCH,
        PIN_MEMORY,
        PERSISTENT_WORKERS,
        START_METHOD,
        ALLOCATOR,
    ];
}

impl Knob {
    pub fn science(&self) -> Science {
        if knobs::SAME_SCIENCE.contains(&self.name.as_str()) {
            Science::Same
        } else {
            Science::Other
        }
    }
}
