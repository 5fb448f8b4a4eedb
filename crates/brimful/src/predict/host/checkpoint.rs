//! What saving a checkpoint takes for a while.

use crate::predict::host::Moment;
use crate::predict::host::case::{Case, Estimate};

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    if moment != Moment::Saving {
        return Estimate::default();
    }
    let facts = case.facts;
    match facts.checkpoint {
        Some(measured) => Estimate::new(measured, measured),
        // `torch.save` brings the tensors of a card to the host one at a time; those of the host are written as they
        // are.
        None if facts.on_gpu => Estimate::new(facts.largest_parameter, facts.largest_parameter)
            .because("not rehearsed: size of the largest parameter, because torch.save copies one at a time"),
        None => Estimate::default(),
    }
}
