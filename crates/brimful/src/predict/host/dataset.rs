//! The dataset in the main process.

use crate::predict::host::case::{Case, Estimate, per_mille};
use crate::predict::host::{Moment, margins};
use crate::units::Bytes;

/// At most what the main process has more than a fresh interpreter.
pub(crate) fn in_main(case: &Case<'_>) -> Bytes {
    let facts = case.facts;
    let parts = facts.dataset.buffers.saturating_add(facts.dataset.objects);
    parts.min(facts.main_at_start.saturating_sub(facts.imports))
}

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    let mut anonymous = in_main(case);
    let dataset = &case.facts.dataset;
    let moved = case.is_fresh() && case.pipeline.workers > 0 && moment != Moment::Building;
    if !moved || dataset.tensors == Bytes::ZERO {
        let safe = anonymous.saturating_add(per_mille(anonymous, margins::DATASET));
        return Estimate::new(anonymous, safe).times(case.ranks());
    }
    // PyTorch moves tensors to shared memory when they are sent to a process, one after the other. malloc keeps the
    // place of the smaller ones (measured with glibc 2.36: 262 MB of 128 KiB tensors were there twice).
    anonymous = anonymous.saturating_sub(dataset.tensors.saturating_sub(dataset.heap_tensors));
    let safe = anonymous.saturating_add(per_mille(anonymous, margins::DATASET));
    Estimate::new(anonymous, safe)
        .plus(&Estimate::new(dataset.tensors, dataset.tensors).in_shm())
        .because("tensors move to /dev/shm, where all workers share them; malloc keeps the space of the smaller ones")
        .times(case.ranks())
}
