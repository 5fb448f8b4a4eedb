//! One combination of settings with what it needs and how fast it is, and which of two is better.

use std::cmp::Ordering;

use crate::plan::Throughput;
use crate::plan::candidates::CandidateIndex;
use crate::plan::fit::Demand;
use crate::plan::learning::excludes;
use crate::plan::lessons::Death;
use crate::plan::view::View;

/// Settings with what they take and how fast they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) place: CandidateIndex,
    pub(crate) taken: Demand,
    pub(crate) throughput: Throughput,
}

pub(crate) fn candidate(view: &View<'_>, place: CandidateIndex) -> Option<Candidate> {
    Some(Candidate {
        place,
        taken: view.taken(place)?,
        throughput: view.throughput(place),
    })
}

/// The earlier death that these settings would repeat.
pub(crate) fn died_of<'v>(view: &'v View<'_>, candidate: &Candidate) -> Option<&'v Death> {
    view.lessons
        .deaths
        .iter()
        .find(|death| excludes(death, view, candidate.place, &candidate.taken))
}

/// Better comes first.
pub(crate) fn order(a: &Candidate, b: &Candidate) -> Ordering {
    let science = |c: &Candidate| (c.place.spot.level, c.place.spot.compile);
    let speed = |c: &Candidate| c.throughput.samples_per_second;
    let rest = |c: &Candidate| {
        let card = c.taken.gpu.map_or(0, |gpu| gpu.safe);
        // The allocator is left as it is wanted where that makes no difference.
        let asked = (c.place.spot.eval, c.place.allocator);
        (asked, c.taken.host.safe, card, c.place)
    };
    science(a)
        .cmp(&science(b))
        .then_with(|| speed(b).total_cmp(&speed(a)))
        .then_with(|| rest(a).cmp(&rest(b)))
}
