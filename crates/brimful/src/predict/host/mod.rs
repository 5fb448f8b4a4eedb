//! What a training needs of host memory, for any number of workers, prefetch, micro-batch and start method.
//!
//! Measure a little, then compute: a rehearsal brings [`HostFacts`], [`host_need`] makes a [`HostNeed`] of them. One
//! file per term; a term says its bytes at each moment, and the peak is the fullest moment.
//!
//! Read first: [`HostFacts`], then `TERMS` in this file. The margins of safe values are in `margins.rs`.

mod batches;
mod case;
mod checkpoint;
mod dataset;
mod facts;
mod making;
mod margins;
mod moment;
mod need;
mod pickle_buffer;
mod pinned;
mod program;
#[cfg(test)]
mod tests;
mod training;
mod worker_copies;
mod worker_programs;

pub use facts::{DatasetFacts, EvaluationFacts, HostFacts, Pipeline, StartMethod, WorkerFacts};
pub(crate) use moment::Moment;
pub use need::{HostNeed, HostTerm, HostTermId};

use crate::units::Bytes;
use case::{Case, Estimate};

/// The bytes of one term at a moment.
type TermOf = fn(&Case<'_>, Moment) -> Estimate;

/// Every term, in the order in which they are shown.
const TERMS: [(HostTermId, TermOf); 10] = [
    (HostTermId::Program, program::estimate),
    (HostTermId::Dataset, dataset::estimate),
    (HostTermId::Training, training::estimate),
    (HostTermId::WorkerPrograms, worker_programs::estimate),
    (HostTermId::WorkerCopies, worker_copies::estimate),
    (HostTermId::MakingBatches, making::estimate),
    (HostTermId::PickleBuffer, pickle_buffer::estimate),
    (HostTermId::Batches, batches::estimate),
    (HostTermId::Pinned, pinned::estimate),
    (HostTermId::Checkpoint, checkpoint::estimate),
];

/// The bytes that `pipeline` needs.
///
/// `likely` and `safe` are each those of their own fullest moment; `terms` are those of the moment at which the safe
/// values are highest.
pub fn host_need(facts: &HostFacts, pipeline: &Pipeline) -> HostNeed {
    let case = Case::new(facts, pipeline);
    let mut need = HostNeed::default();
    let mut highest = None;
    for moment in Moment::ALL {
        let terms: Vec<(HostTermId, Estimate)> = TERMS
            .iter()
            .map(|(id, term)| (*id, term(&case, moment)))
            .collect();
        let total = terms
            .iter()
            .fold(Estimate::default(), |sum, (_, term)| sum.plus(term));
        need.likely = need.likely.max(total.likely);
        need.safe = need.safe.max(total.safe);
        need.shm_likely = need.shm_likely.max(total.shm_likely);
        need.shm_safe = need.shm_safe.max(total.shm_safe);
        if highest.is_none_or(|most| total.safe > most) {
            highest = Some(total.safe);
            need.terms = terms
                .into_iter()
                .filter(|(_, term)| term.safe > Bytes::ZERO)
                .map(|(id, term)| term.named(id))
                .collect();
        }
    }
    need
}
