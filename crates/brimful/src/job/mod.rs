//! A job as its user describes it: the command, what must be kept, and which knobs may be turned.
//!
//! Read first: [`Job`]. It comes from a `brimful.toml` ([`read()`], [`JobFile`]); a [`Settings`] makes a command line of
//! it ([`Job::render`]) or one of the [`forms`] that others take.

mod value;

mod bounds;
mod config;
mod error;
mod file;
mod located;
mod overrides;
mod read;
mod rules;
mod template;

mod problems;
mod render;

pub mod draft;
pub mod forms;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use config::{
    ConfigError, ConfigFile, ConfigKey, ConfigOverrides, MAX_CONFIG_BYTES, config_keys, with_values,
};
pub use error::{JobError, Mistake};
pub use file::JobFile;
pub use located::LARGEST_FILE;
pub use overrides::Override;
pub use problems::JobProblem;
pub use read::{read, read_pyproject};
pub use render::{ALLOCATOR_VARIABLE, Rendered};
pub use template::BraceProblem;
pub use value::{Settings, Value};

/// A job as its user describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Job {
    /// The command line, with places for knobs: `{workers}`.
    pub command: Vec<String>,
    /// Patterns of the files or folders that hold checkpoints, below the job's folder.
    pub checkpoints: Vec<String>,
    /// What is added to the command to go on from `{checkpoint}`; empty where the script finds it by itself.
    pub resume: Vec<String>,
    /// Arguments that are added at the end, by a mode.
    pub extra: Vec<String>,
    /// Other places of the command, such as a mode's `max_steps`.
    pub values: BTreeMap<String, Value>,
    /// Samples per optimizer step, over all ranks and accumulated micro-batches; never changed.
    pub effective_batch: Option<u64>,
    /// In the user's order.
    pub knobs: Vec<Knob>,
    /// Knobs of other science in the order in which they may be given up.
    pub sacrifice: Vec<String>,
    /// YAML or JSON files that the command names, with the values that their copies get.
    pub config: Vec<ConfigOverrides>,
}

/// A setting that may change.
#[derive(Clone, Debug, PartialEq)]
pub struct Knob {
    pub name: String,
    pub choices: Choices,
}

/// What a knob may be set to.
#[derive(Clone, Debug, PartialEq)]
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

impl Job {
    pub fn knob(&self, name: &str) -> Option<&Knob> {
        self.knobs.iter().find(|knob| knob.name == name)
    }

    /// Knobs that change the result.
    pub fn other_science(&self) -> impl Iterator<Item = &Knob> {
        self.knobs
            .iter()
            .filter(|knob| knob.science() == Science::Other)
    }

    /// Micro-batches that keep the effective batch, best first: with `world_size` ranks, each makes a whole number of
    /// them per step. Largest first where they are not listed; as listed where nothing has to be kept.
    pub fn micro_batches(&self, world_size: u64) -> Vec<u64> {
        let Some(knob) = self.knob(knobs::MICRO_BATCH) else {
            return Vec::new();
        };
        let fits = |batch: u64| match (self.effective_batch, batch.checked_mul(world_size.max(1))) {
            (Some(effective), Some(all)) => all > 0 && effective.is_multiple_of(all),
            (None, _) => true,
            (_, None) => false,
        };
        match (&knob.choices, self.effective_batch) {
            (Choices::Listed(values), _) => values
                .iter()
                .filter_map(Value::count)
                .filter(|batch| fits(*batch))
                .collect(),
            (Choices::Auto, None) => Vec::new(),
            (Choices::Auto, Some(effective)) => {
                let mut found: Vec<u64> = divisors(effective)
                    .into_iter()
                    .filter(|batch| fits(*batch))
                    .collect();
                found.reverse();
                found
            }
        }
    }
}

/// All divisors, smallest first.
fn divisors(number: u64) -> Vec<u64> {
    let small: Vec<u64> = (1..=number)
        .take_while(|divisor: &u64| divisor.saturating_mul(*divisor) <= number)
        .filter(|divisor| number.is_multiple_of(*divisor))
        .collect();
    let mut all = small.clone();
    all.extend(
        small
            .iter()
            .rev()
            .map(|divisor| number / divisor)
            .filter(|divisor| divisor.saturating_mul(*divisor) > number),
    );
    all
}
