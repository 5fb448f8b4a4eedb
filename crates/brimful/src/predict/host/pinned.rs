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
    let rehearsed = case.facts.batch_pinned.max(case.facts.batch);
    let one = case.scaled(rehearsed);
    let most = rounded_up(case, rehearsed)
        .min(times(case.scaled(case.facts.batch), 2))
        .max(one);
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

/// The most that a batch can take once each of its tensors is rounded up to a power of two: it is known for the
/// rehearsed micro-batch, doubles exactly where that doubles, and is no less in between.
fn rounded_up(case: &Case<'_>, rehearsed: Bytes) -> Bytes {
    let (before, now) = (case.facts.micro_batch, case.pipeline.micro_batch);
    if before == 0 {
        return rehearsed;
    }
    let (mut reached, mut bytes) = (u128::from(before), u128::from(rehearsed.get()));
    while reached < u128::from(now) {
        reached *= 2;
        bytes *= 2;
    }
    while reached.is_multiple_of(2) && reached / 2 >= u128::from(now).max(1) {
        reached /= 2;
        bytes = bytes.div_ceil(2);
    }
    Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
}
