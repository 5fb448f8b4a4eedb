//! The ladder below a plan: what would be tried if it died, for want of nothing in particular.
//!
//! Each rung turns one knob of the rung above one step down, the one that costs least throughput, and needs fewer bytes
//! of the host, of `/dev/shm` or of the card. Science is given up last. After a real death the verdict chooses instead
//! (see `revise.rs`).

use std::collections::BTreeSet;

use crate::plan::Rung;
use crate::plan::candidates::CandidateIndex;
use crate::plan::fit::{self, Demand};
use crate::plan::moves::{changes, halved};
use crate::plan::view::View;

/// Longer ladders help nobody.
const MAX_RUNGS: usize = 12;
/// Of these, kept for sacrifices.
const MAX_SACRIFICES: usize = 3;

pub(crate) fn rungs(view: &View<'_>, top: CandidateIndex) -> Vec<Rung> {
    let mut ladder = Vec::new();
    let mut seen = BTreeSet::from([top]);
    let mut above = top;
    let below = view.space.n_levels() - 1 - top.spot.level;
    let same_science = MAX_RUNGS - below.min(MAX_SACRIFICES);
    while ladder.len() < MAX_RUNGS {
        let down = (ladder.len() < same_science)
            .then(|| cheapest_step_down(view, above, &seen))
            .flatten()
            .or_else(|| sacrifice(view, above, &seen));
        let Some(next) = down else { break };
        seen.insert(next);
        ladder.push(rung(view, above, next));
        above = next;
    }
    ladder
}

fn rung(view: &View<'_>, above: CandidateIndex, place: CandidateIndex) -> Rung {
    let settings = view.space.settings(place);
    let taken = view.taken(place);
    Rung {
        changed: changes(&view.space.settings(above), &settings),
        settings,
        brims: taken
            .as_ref()
            .map_or_else(Vec::new, |taken| fit::brims(view.room, taken)),
        throughput: taken.map(|_| view.throughput(place)),
    }
}

fn cheapest_step_down(
    view: &View<'_>,
    from: CandidateIndex,
    seen: &BTreeSet<CandidateIndex>,
) -> Option<CandidateIndex> {
    let before = view.taken(from);
    let speed = |place: &CandidateIndex| view.throughput(*place).samples_per_second;
    let is_lower = |place: &CandidateIndex| match (&before, view.taken(*place)) {
        (Some(before), Some(after)) => is_below(&after, before),
        _ => false,
    };
    steps_down(view, from)
        .into_iter()
        .filter(|place| !seen.contains(place) && is_lower(place))
        .max_by(|a, b| speed(a).total_cmp(&speed(b)).then_with(|| b.cmp(a)))
}

/// One knob each.
fn steps_down(view: &View<'_>, from: CandidateIndex) -> Vec<CandidateIndex> {
    let space = &view.space;
    let workers = space.pipes[from.pipe].workers;
    let fewer: Vec<(u64, u64)> = space
        .fewer_workers(from)
        .into_iter()
        .map(|fewer| (fewer, fewer))
        .collect();
    let mut steps = space.lighter_pipes(from);
    steps.extend(
        halved(workers, &fewer)
            .and_then(|fewer| space.with_pipe(from, |pipe| pipe.workers = Some(fewer))),
    );
    steps.extend((0..space.allocators.len()).map(|allocator| CandidateIndex { allocator, ..from }));
    steps.extend(space.smaller_micros(from).first().map(|(_, place)| *place));
    steps.extend(space.more_saving(from).first().copied());
    let eval = space.evals[from.spot.eval];
    steps.extend(halved(eval, &space.smaller_evals(from)));
    steps.retain(|place| *place != from);
    steps
}

/// The next level that needs less of something; where that is not known, one that gives nothing back.
fn sacrifice(
    view: &View<'_>,
    from: CandidateIndex,
    seen: &BTreeSet<CandidateIndex>,
) -> Option<CandidateIndex> {
    let before = view.taken(from);
    view.space.more_sacrifice(from).find(|place| {
        let helps = match (&before, view.taken(*place)) {
            (Some(before), Some(after)) => is_below(&after, before),
            _ => view.space.only_gives_up(from.spot.level, place.spot.level),
        };
        helps && !seen.contains(place)
    })
}

/// Fewer bytes of something.
fn is_below(after: &Demand, before: &Demand) -> bool {
    let card = |taken: &Demand| taken.gpu.map_or(0, |gpu| gpu.safe);
    after.host.safe < before.host.safe
        || after.host.shm_safe < before.host.shm_safe
        || card(after) < card(before)
}
