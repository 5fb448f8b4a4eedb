//! The interpreter, torch, the model and what else the main process has when training begins, without its dataset.

use crate::predict::host::case::{Case, Estimate, per_mille};
use crate::predict::host::{Moment, dataset, margins};
use crate::units::Bytes;

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    let facts = case.facts;
    let all = match moment {
        Moment::Building => facts.build_peak,
        _ => facts.main_at_start,
    };
    let own = all.saturating_sub(dataset::in_main(case));
    let drift = |parts| match moment {
        Moment::Building | Moment::Starting => Bytes::ZERO,
        _ => per_mille(own, parts),
    };
    let likely = own.saturating_add(drift(margins::MAIN_DRIFT_LIKELY));
    let safe = own.saturating_add(drift(margins::MAIN_DRIFT));
    let driver = if facts.on_gpu {
        margins::DRIVER
    } else {
        Bytes::ZERO
    };
    let estimate = Estimate::new(
        likely.saturating_add(facts.libraries),
        safe.saturating_add(facts.libraries).saturating_add(driver),
    )
    .times(case.ranks());
    if facts.libraries > Bytes::ZERO {
        estimate.because(format!(
            "includes {} for the CUDA libraries, which the phantom GPU replaced",
            facts.libraries
        ))
    } else {
        estimate
    }
}
