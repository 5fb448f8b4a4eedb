//! What the making of batches takes: samples and everything between the file and the finished batch, in each worker, or
//! in the main process where there are none.

use crate::predict::host::case::{Case, Estimate, per_mille, times};
use crate::predict::host::{Moment, margins};
use crate::units::Bytes;

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    if matches!(moment, Moment::Building | Moment::Starting) {
        return Estimate::default();
    }
    // Those of the evaluation have made nothing yet while they are started.
    let makers = match moment {
        Moment::StartingEvaluation => case.pipeline.workers,
        _ => case.workers_at(moment),
    };
    let making = case.facts.making;
    // What comes and goes between results that stay leaves holes in malloc's heap, in one run many, in the next none:
    // twelve tries with the same 16 images grew by 8 to 88 MB (glibc 2.36).
    let holes = times(case.facts.passing, case.facts.micro_batch);
    let likely = making.max(per_mille(holes, margins::HOLES_LIKELY).min(margins::MAX_HOLES_LIKELY));
    let safe = making
        .saturating_add(per_mille(making, margins::MAKING))
        .max(holes.min(margins::MAX_HOLES));
    let once = case.scaled(per_mille(likely, margins::MAKING_ONCE));
    Estimate::new(case.scaled(likely), case.scaled(safe))
        .times(makers.max(1))
        .plus(&Estimate::new(Bytes::ZERO, once))
        .times(case.ranks())
}
