//! The settings around the chosen ones, with what they need and how fast they are, for a picture of the choice.

use crate::plan::candidate::{candidate, died_of};
use crate::plan::candidates::{CandidateIndex, RehearsalPoint};
use crate::plan::view::View;
use crate::plan::{PlanCandidate, fit};

/// Settings of one picture.
const MAX_CANDIDATES: usize = 200;

/// Settings that differ from `around` in the micro-batch, checkpointing or the pipeline, also those that do not fit.
///
/// What differs in one of them only comes first; nobody looks at thousands.
pub(crate) fn considered(view: &View<'_>, around: CandidateIndex) -> Vec<PlanCandidate> {
    let mut places: Vec<CandidateIndex> = Vec::new();
    for checkpoint in 0..view.space.checkpoints.len() {
        for micro in 0..view.space.micros.len() {
            let spot = RehearsalPoint {
                checkpoint,
                micro,
                ..around.spot
            };
            let pipes = 0..view.space.pipes.len();
            places.extend(pipes.map(|pipe| CandidateIndex {
                spot,
                pipe,
                ..around
            }));
        }
    }
    let differences = |place: &CandidateIndex| {
        usize::from(place.spot != around.spot) + usize::from(place.pipe != around.pipe)
    };
    places.sort_by_key(|place| (differences(place), *place));
    places.truncate(MAX_CANDIDATES);
    let found = places
        .into_iter()
        .filter_map(|place| candidate(view, place));
    found
        .map(|found| PlanCandidate {
            settings: view.space.settings(found.place),
            brims: fit::brims(view.room, &found.taken),
            throughput: found.throughput,
            fits: fit::fits(view.room, &found.taken) && died_of(view, &found).is_none(),
        })
        .collect()
}
