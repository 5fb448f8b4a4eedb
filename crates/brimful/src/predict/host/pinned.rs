//! Pinned copies of batches, for a card.

use crate::predict::host::Moment;
use crate::predict::host::case::{Case, Estimate, times};
use crate::units::Bytes;

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    let waits = matches!(
        moment,
        Moment::Training | Moment::Evaluating | Moment::Saving
    );
    if !waits || !case.pipeline.pin_memory || !case.facts.on_gpu {
        return Estimate::default();
    }
    let before = case.facts.micro_batch.max(1);
    let now = case.pipeline.micro_batch;
    let one = case.scaled(case.facts.batch_pinned);
    // Each tensor is rounded up to a power of two; between two of them it is not known which.
    let most = if now == before
        || (now > before && now.is_multiple_of(before) && (now / before).is_power_of_two())
    {
        one
    } else {
        one.max(times(case.scaled(case.facts.batch), 2))
    };
    let ahead = case
        .pipeline
        .workers
        .saturating_mul(case.pipeline.prefetch.max(1));
    let likely = times(one, ahead.saturating_add(1));
    let safe = times(most, ahead.saturating_add(2));
    let estimate = Estimate::new(likely, safe).times(case.ranks());
    if estimate.safe > Bytes::ZERO {
        estimate.because("PyTorch rounds pinned memory up to powers of two and keeps it")
    } else {
        estimate
    }
}
