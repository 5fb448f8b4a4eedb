//! The pickled dataset in the main process while the last worker reads it.

use crate::predict::host::Moment;
use crate::predict::host::case::{Case, Estimate};
use crate::units::Bytes;

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    let is_starting = match moment {
        Moment::Starting => true,
        Moment::StartingEvaluation => case.evaluation_beside().is_some(),
        _ => false,
    };
    if !is_starting || !case.is_fresh() || case.pipeline.workers == 0 {
        return Estimate::default();
    }
    let dataset = &case.facts.dataset;
    let sent = dataset.arrays.saturating_add(dataset.pickled);
    // Before protocol 5 the pickler copies arrays to bytes first and lets go of these when it is done; only then is
    // the worker's process started. So that moment is fuller only where the arrays are more than a worker without
    // them.
    let copied = if dataset.protocol < 5 {
        dataset.arrays
    } else {
        Bytes::ZERO
    };
    let worker = case
        .facts
        .imports
        .saturating_add(dataset.arrays)
        .saturating_add(dataset.fresh_objects);
    let more = copied.saturating_sub(worker);
    let most = sent.saturating_add(more);
    Estimate::new(most, most)
        .because("the main process holds the pickled dataset until the worker has read it")
        .times(case.ranks())
}
