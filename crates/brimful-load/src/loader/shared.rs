//! What the loader and the threads of its epochs have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brimful::units::Bytes;

use crate::array::TensorSpec;
use crate::loader::batch::Pool;
use crate::loader::budget::Budget;
use crate::loader::settings::LoaderSettings;
use crate::loader::statistics::Counters;
use crate::order::{Order, Split};
use crate::pipeline::Pipeline;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pipeline: Pipeline,
    pub(super) forms: Vec<TensorSpec>,
    pub(super) settings: LoaderSettings,
    pub(super) budget: Budget,
    pub(super) pool: Arc<Pool>,
    pub(super) counters: Counters,
    /// In thousandths; see [`Loader::set_pressure`](crate::loader::Loader::set_pressure).
    pub(super) pressure: AtomicU64,
}

impl Shared {
    pub(super) fn split(&self) -> Split {
        Split {
            rank: self.settings.rank,
            world_size: self.settings.world_size,
            batch_size: self.settings.batch_size,
            drop_last: self.settings.drop_last,
        }
    }

    pub(super) fn order(&self, epoch: u64) -> Order {
        let len = self.pipeline.source().len();
        match self.settings.shuffle_seed {
            Some(seed) => Order::shuffled(len, seed, epoch),
            None => Order::in_turn(len),
        }
    }

    /// Batches that may be in the making or ready at once, now.
    pub(super) fn batches_ahead(&self) -> u64 {
        let pressure = self.pressure.load(Ordering::Relaxed).min(1000);
        let all = self.budget.batches;
        (all - all * pressure / 1000).max(1)
    }

    pub(super) fn bound_pool(&self) {
        let batches = self.batches_ahead().saturating_mul(self.budget.batch.get());
        self.pool.hold_at_most(batches);
    }

    pub(super) fn held(&self) -> Bytes {
        Bytes(self.pool.held() + self.counters.read_scratch() + self.budget.kept.get())
    }
}
