//! Batches on their way from the workers, in shared memory.

use crate::predict::host::case::{Case, Estimate, times};
use crate::predict::host::{Moment, margins};

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    if matches!(
        moment,
        Moment::Building | Moment::Starting | Moment::StartingEvaluation
    ) {
        return Estimate::default();
    }
    let workers = case.pipeline.workers;
    if workers == 0 {
        let one = case.scaled(case.facts.batch);
        // The next one is made while the loop still holds the last.
        return Estimate::new(one, times(one, 2)).times(case.ranks());
    }
    // In whole pages it is never less, whatever the facts say.
    let one = case.scaled(case.facts.batch_shm.max(case.facts.batch));
    let ahead = workers.saturating_mul(case.pipeline.prefetch.max(1));
    let mut all = Estimate::new(
        times(one, ahead.saturating_add(1)),
        times(one, ahead.saturating_add(2)).saturating_add(margins::QUEUES),
    );
    if let (Moment::Evaluating, Some(evaluation)) = (moment, case.evaluation_beside()) {
        let other = evaluation.batch_shm.max(one);
        let waiting = ahead.saturating_add(1);
        all = all.plus(&Estimate::new(times(other, waiting), times(other, waiting)));
    }
    all.in_shm()
        .because("each worker prefetches its batches; the training process holds one more")
        .times(case.ranks())
}
