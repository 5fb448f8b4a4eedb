//! The dataset once more in each worker: objects that a forked one looks at, or all of it in a fresh one.

use crate::predict::host::case::{Case, Estimate, per_mille, times};
use crate::predict::host::{Moment, margins};
use crate::units::Bytes;

const PAGE: u64 = 4096;

/// The dataset as a fresh worker builds it anew; tensors stay in shared memory.
pub(crate) fn rebuilt(case: &Case<'_>) -> Bytes {
    let dataset = &case.facts.dataset;
    dataset.arrays.saturating_add(dataset.fresh_objects)
}

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    let workers = case.workers_at(moment);
    if workers == 0 {
        return Estimate::default();
    }
    if case.is_fresh() {
        let one = rebuilt(case);
        let safe = one.saturating_add(per_mille(one, margins::FRESH_DATASET));
        return Estimate::new(one, safe)
            .times(workers)
            .because("each worker receives the pickled dataset and rebuilds it")
            .times(case.ranks());
    }
    if moment == Moment::Starting {
        return Estimate::default();
    }
    let objects = case.facts.dataset.objects;
    Estimate::new(
        times(looked_at(case, objects), workers),
        times(objects, workers),
    )
    .because("reference counts: a forked worker copies every page whose objects it reads, eventually all of them")
    .times(case.ranks())
}

/// What one worker is likely to have looked at in the end.
///
/// Workers that stay see all samples in time. Others live for one epoch, and each sees its share of the samples and of
/// the pages that these lie in, unless the rehearsed one looked at far more than its own samples.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a number of bytes is between zero and that number"
)]
fn looked_at(case: &Case<'_>, objects: Bytes) -> Bytes {
    let facts = case.facts;
    let samples = facts.dataset.samples;
    let Some(worker) = facts.worker.as_ref().filter(|_| case.like_rehearsed()) else {
        return objects;
    };
    if case.pipeline.persistent_workers || samples == 0 || case.pipeline.workers < 2 {
        return objects;
    }
    let own = (objects.get() / samples).max(1);
    let expected = (own + PAGE).saturating_mul(worker.samples);
    let wanders = worker.copied.get()
        > margins::PROGRAM_PAGES
            .get()
            .saturating_add(expected.saturating_mul(3));
    if wanders {
        return objects;
    }
    // A page is copied if any of the samples in it is this worker's.
    let in_a_page = 1.0 + PAGE as f64 / own as f64;
    let others = 1.0 - 1.0 / case.pipeline.workers as f64;
    let share = 1.0 - others.powf(in_a_page.min(1e6));
    Bytes((objects.get() as f64 * share) as u64)
}
