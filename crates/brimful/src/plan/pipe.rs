//! How data reaches the training process, as far as knobs decide it.

use crate::predict::host::{HostFacts, Pipeline, StartMethod};

/// How data is handed over; nothing for what is not a knob of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pipe {
    pub(crate) workers: Option<u64>,
    pub(crate) prefetch: Option<u64>,
    pub(crate) pin_memory: Option<bool>,
    pub(crate) persistent: Option<bool>,
    pub(crate) start_method: Option<StartMethod>,
}

impl Pipe {
    /// As the host's needs are asked for; what is no knob stays as it was rehearsed.
    pub(crate) fn pipeline(&self, facts: &HostFacts, micro: Option<u64>) -> Pipeline {
        Pipeline {
            workers: self.workers.unwrap_or(facts.workers),
            prefetch: self.prefetch.unwrap_or(facts.prefetch),
            micro_batch: micro.unwrap_or(facts.micro_batch),
            start_method: self.start_method.unwrap_or(facts.start_method),
            pin_memory: self.pin_memory.unwrap_or(facts.pin_memory),
            persistent_workers: self.persistent.unwrap_or(facts.persistent_workers),
        }
    }
}

/// Micro-batches per optimizer step, where it is a whole number.
pub(crate) fn accumulation(effective: Option<u64>, micro: u64, world: u64) -> Option<u64> {
    let effective = effective?;
    let at_once = micro.checked_mul(world.max(1)).filter(|n| *n > 0)?;
    (effective > 0 && effective.is_multiple_of(at_once)).then(|| effective / at_once)
}
