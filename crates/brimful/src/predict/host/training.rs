//! What training adds to the main process: on the processors gradients, optimizer state and activations, with a card
//! what the libraries keep.

use crate::predict::host::case::{Case, Estimate, per_mille};
use crate::predict::host::{Moment, margins};

pub(crate) fn estimate(case: &Case<'_>, moment: Moment) -> Estimate {
    let facts = case.facts;
    let within = case.scaled(facts.training_peak);
    let estimate = match moment {
        Moment::Building => return Estimate::default(),
        // Workers that do not stay are started again for every epoch, beside the state of the optimizer.
        Moment::Starting if case.pipeline.persistent_workers => return Estimate::default(),
        Moment::Starting | Moment::StartingEvaluation => {
            Estimate::new(facts.training_kept, facts.training_kept)
        }
        Moment::Training | Moment::Evaluating | Moment::Saving => {
            let likely = facts.training_kept.saturating_add(within);
            let more = per_mille(likely, margins::STEP);
            Estimate::new(likely, likely.saturating_add(more))
        }
    };
    estimate.times(case.ranks())
}
