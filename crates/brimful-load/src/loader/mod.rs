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
mod error;
#[cfg(test)]
mod remote_tests;
mod scratch_pool;
mod settings;
mod shared;
mod statistics;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brimful::units::Bytes;

use crate::pipeline::{Pipeline, SampleError};

pub use batch::{Batch, BatchField, Lent};
pub use budget::Budget;
pub use epoch::{Epoch, Next};
pub use error::LoaderError;
pub use settings::{LoaderSettings, OnError};
pub use statistics::Statistics;

use batch::Pool;
use budget::Needs;
use shared::Shared;
use statistics::Counters;

/// Makes the batches of one epoch after another.
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
}

impl Loader {
    pub fn new(pipeline: Pipeline, settings: LoaderSettings) -> Result<Loader, LoaderError> {
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

    pub fn settings(&self) -> &LoaderSettings {
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
