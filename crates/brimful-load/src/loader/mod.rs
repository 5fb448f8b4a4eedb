//! Batches, made ahead by threads inside a byte budget.
//!
//! ```text
//!             ┌ thread ┐   each takes the next few slots of the batch that is being filled
//!  Order ───▶ ├ thread ┤ ─────▶ [batch][batch][batch] ─────▶ Epoch::next, in order
//!             └ thread ┘        at most so many as the budget allows
//! ```
//!
//! A thread reads a sample into its own memory, and works on it at scratch memory, of which there may be fewer: to read takes
//! time, and to decode takes memory.
//!
//! Read first: [`Loader`], then [`Epoch`].

mod batch;
mod budget;
mod epoch;
#[cfg(test)]
mod remote_tests;
mod scratch_pool;
mod statistics;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brimful::units::Bytes;

use crate::array::TensorSpec;
use crate::order::{Order, Split};
use crate::pipeline::{Pipeline, PipelineError, SampleError};

pub use batch::{Batch, BatchField, Lent};
pub use budget::Budget;
pub use epoch::{Epoch, Next};
pub use statistics::Statistics;

use batch::Pool;
use budget::Needs;
use statistics::Counters;

/// What happens to a sample that cannot be read or transformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The epoch ends with its error.
    #[default]
    Raise,
    /// It is left out of its batch, and counted.
    Skip,
}

/// How batches are made.
#[derive(Clone, Debug)]
pub struct Settings {
    pub batch_size: u64,
    /// Nothing for the order of the source.
    pub shuffle_seed: Option<u64>,
    /// Of random ops.
    pub seed: u64,
    /// All that it may hold: what threads read and make, and batches that were not handed out yet.
    pub memory: Bytes,
    /// Nothing for as many as keep the processors busy.
    pub threads: Option<usize>,
    /// Batches ahead at the most, where the memory allows.
    pub prefetch: u64,
    pub rank: u64,
    pub world_size: u64,
    pub drop_last: bool,
    pub on_error: OnError,
}

/// Settings that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    #[error("{name} must be {expected}, found {found}")]
    Setting {
        name: &'static str,
        expected: String,
        found: String,
    },
    /// Said before the first step.
    #[error(
        "memory budget of {memory} is too small: one batch needs {batch} and one thread needs {thread} of scratch \
         memory{}",
        match *kept {
            Bytes::ZERO => String::new(),
            kept => format!(", and the dataset keeps {kept}"),
        }
    )]
    TooLittleMemory {
        batch: Bytes,
        thread: Bytes,
        kept: Bytes,
        needed: Bytes,
        memory: Bytes,
    },
}

/// Makes the batches of one epoch after another.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
}

/// What the loader and the threads of its epochs have in common.
#[derive(Debug)]
struct Shared {
    pipeline: Pipeline,
    forms: Vec<TensorSpec>,
    settings: Settings,
    budget: Budget,
    pool: Arc<Pool>,
    counters: Counters,
    /// In thousandths; see [`Loader::set_pressure`].
    pressure: AtomicU64,
}

impl Loader {
    pub fn new(pipeline: Pipeline, settings: Settings) -> Result<Loader, LoaderError> {
        settings.check()?;
        let forms = pipeline.forms()?;
        let needs = Needs {
            thread: pipeline.bytes_to_read(),
            op_scratch: pipeline.bytes_to_make(),
            kept: pipeline.source().kept_bytes(),
        };
        let budget = Budget::new(
            &forms,
            needs,
            &settings,
            pipeline.source().choice().access,
            crate::processors(),
        )?;
        Ok(Loader {
            shared: Arc::new(Shared {
                pool: Arc::new(Pool::default()),
                counters: Counters::of_stages(pipeline.stages().len()),
                pressure: AtomicU64::new(0),
                pipeline,
                forms,
                settings,
                budget,
            }),
        })
    }

    pub fn pipeline(&self) -> &Pipeline {
        &self.shared.pipeline
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub fn budget(&self) -> &Budget {
        &self.shared.budget
    }

    /// Samples of an epoch, over all ranks.
    pub fn samples(&self) -> u64 {
        self.shared.pipeline.source().len()
    }

    /// Batches of this rank from a position to the end of an epoch.
    pub fn batches(&self, position: u64) -> u64 {
        self.shared.split().batches(position, self.samples())
    }

    /// Starts to make the batches of an epoch from a position on.
    pub fn epoch(&self, epoch: u64, position: u64) -> Epoch {
        Epoch::start(Arc::clone(&self.shared), epoch, position)
    }

    /// Bytes that it holds now: what threads read and make, batches ahead, buffers that wait to be used again, and all
    /// that the source may keep.
    ///
    /// Batches that were handed out belong to whoever has them.
    pub fn held(&self) -> Bytes {
        self.shared.held()
    }

    /// How short memory is, from 0 (not at all) to 1 (very): fewer batches are made ahead, down to one.
    pub fn set_pressure(&self, pressure: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 1000"
        )]
        let thousandths = (pressure.clamp(0.0, 1.0) * 1000.0) as u64;
        self.shared.pressure.store(thousandths, Ordering::Relaxed);
        self.shared.bound_pool();
    }

    /// Why samples were left out, of the first ones.
    pub fn skipped(&self) -> Vec<Arc<SampleError>> {
        self.shared.counters.told()
    }

    pub fn statistics(&self) -> Statistics {
        let stages = self.shared.pipeline.stages();
        let shares_scratch = self.shared.budget.op_scratches < self.shared.budget.threads;
        self.shared.counters.statistics(stages, shares_scratch)
    }
}

impl Shared {
    fn split(&self) -> Split {
        Split {
            rank: self.settings.rank,
            world_size: self.settings.world_size,
            batch_size: self.settings.batch_size,
            drop_last: self.settings.drop_last,
        }
    }

    fn order(&self, epoch: u64) -> Order {
        let len = self.pipeline.source().len();
        match self.settings.shuffle_seed {
            Some(seed) => Order::shuffled(len, seed, epoch),
            None => Order::in_turn(len),
        }
    }

    /// Batches that may be in the making or ready at once, now.
    fn batches_ahead(&self) -> u64 {
        let pressure = self.pressure.load(Ordering::Relaxed).min(1000);
        let all = self.budget.batches;
        (all - all * pressure / 1000).max(1)
    }

    fn bound_pool(&self) {
        let batches = self.batches_ahead().saturating_mul(self.budget.batch.get());
        self.pool.hold_at_most(batches);
    }

    fn held(&self) -> Bytes {
        Bytes(self.pool.held() + self.counters.read_scratch() + self.budget.kept.get())
    }
}

impl Settings {
    fn check(&self) -> Result<(), LoaderError> {
        let wrong = |name, expected: &str, found: u64| {
            Err(LoaderError::Setting {
                name,
                expected: expected.to_owned(),
                found: found.to_string(),
            })
        };
        if self.batch_size == 0 {
            return wrong("batch_size", "at least 1", 0);
        }
        if self.threads == Some(0) {
            return wrong("threads", "at least 1", 0);
        }
        if self.world_size == 0 {
            return wrong("world_size", "at least 1", 0);
        }
        if self.rank >= self.world_size {
            let expected = format!("below the world size {}", self.world_size);
            return wrong("rank", &expected, self.rank);
        }
        Ok(())
    }
}
