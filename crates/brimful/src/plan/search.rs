//! Which settings to rehearse next, and which to choose.
//!
//! **The objective**, in this order: the level of science (see `candidates.rs`); the user's order of `compile`, whose
//! speed on a card no rehearsal shows; throughput; the larger evaluation batch; fewer host bytes; fewer bytes of the
//! card; the user's order of values.
//!
//! **The search** goes level by level and stops at the first at which something fits. At each it rehearses the largest
//! micro-batch first. If that does not fit, straight lines through what is known say which other micro-batch, with or
//! without activation checkpointing, would fit and be fastest; that one is rehearsed, the lines are drawn anew, until
//! nothing that should fit would be faster by [`WORTH`] than the best that was rehearsed. Where nothing should fit, the
//! leanest corner (smallest batches, checkpointing) is rehearsed to be sure: if it does not fit, nothing at this level
//! does.
//!
//! **Known limit.** On processors a rehearsal does not tell what evaluation takes apart from training, so a smaller
//! evaluation batch is tried only where nothing fits with a larger one. And as long as only one micro-batch was rehearsed
//! there, how much faster or slower others are is a guess (see `cost.rs`), which cost a tenth in the worst of some thousand random jobs.

use crate::job::{Job, Settings, knobs};
use crate::plan::candidate::{Candidate, candidate, died_of, order};
use crate::plan::candidates::{CandidateIndex, RehearsalPoint, wanted};
use crate::plan::considered::considered;
use crate::plan::fit;
use crate::plan::impossible::impossible;
use crate::plan::learning;
use crate::plan::reasons::reasons;
use crate::plan::rungs::rungs;
use crate::plan::view::{Computed, LevelView, Needs, View};
use crate::plan::{LearntRun, Need, Plan, PlanLimits, Shape, Step, WantedSettings};

/// How much faster something must promise to be to be worth a rehearsal.
pub(crate) const WORTH: f64 = 1.02;

/// What is to be done to come to a plan for `job` in `room`: rehearse, or be done.
pub fn next_step(job: &Job, room: &PlanLimits, shapes: &[Shape], learnt: &[LearntRun]) -> Step {
    next_step_with(&Computed, job, room, shapes, learnt)
}

pub(crate) fn next_step_with(
    needs: &dyn Needs,
    job: &Job,
    room: &PlanLimits,
    shapes: &[Shape],
    learnt: &[LearntRun],
) -> Step {
    let view = learning::view(needs, job, room, shapes, learnt);
    if view.space.is_empty() {
        return Step::Impossible(Box::new(impossible(&view)));
    }
    for level in 0..view.space.n_levels() {
        for compile in 0..view.space.compiles.len() {
            match decide(&view, level, compile) {
                Decision::Rehearse(spot) => {
                    return Step::Rehearse(with_one_worker(view.space.settings(CandidateIndex {
                        spot,
                        pipe: view.space.rehearsed_pipe(),
                        allocator: 0,
                    })));
                }
                Decision::Choose(best) => return Step::Done(Box::new(plan(&view, &best))),
                Decision::Nothing => {}
            }
        }
    }
    Step::Impossible(Box::new(impossible(&view)))
}

/// One worker tells what each of them costs, also where the job wants more: it is rehearsed once for any number.
fn with_one_worker(settings: Settings) -> Settings {
    match settings.count(knobs::WORKERS) {
        Some(workers) if workers > 1 => settings.with(knobs::WORKERS, 1_u64),
        _ => settings,
    }
}

/// The maximum number of rehearsals at one level with one value of `compile`, for this number of micro-batches and
/// values of checkpointing. The leanest corner may come on top.
pub(crate) fn max_rehearsals(n_micros: usize, n_checkpoints: usize) -> usize {
    let halvings = usize::try_from(n_micros.max(1).ilog2()).unwrap_or(0) + 1;
    3 + halvings * n_checkpoints.max(1)
}

enum Decision {
    Rehearse(RehearsalPoint),
    Choose(Candidate),
    Nothing,
}

fn decide(view: &View<'_>, level: usize, compile: usize) -> Decision {
    let page = view.page(level, compile);
    let (n_micros, n_checkpoints) = (view.space.micros.len(), view.space.checkpoints.len());
    let n_rehearsed = page.known.len() + page.failed.len();
    if n_rehearsed == 0 {
        return Decision::Rehearse(RehearsalPoint {
            level,
            compile,
            checkpoint: 0,
            eval: 0,
            micro: 0,
        });
    }
    let mut refused: Vec<RehearsalPoint> = page.failed.iter().map(|(spot, _)| *spot).collect();
    let mut best: Option<Candidate> = None;
    for (spot, _) in &page.known {
        match best_at(view, *spot) {
            Some(found) if best.is_none_or(|best| order(&found, &best).is_lt()) => {
                best = Some(found);
            }
            Some(_) => {}
            None => refused.push(*spot),
        }
    }
    let fitting: Vec<usize> = page
        .known
        .iter()
        .filter(|(spot, _)| !refused.contains(spot))
        .map(|(spot, _)| spot.eval)
        .collect();
    let most = max_rehearsals(n_micros, n_checkpoints);
    let hopeful = if n_rehearsed < most {
        hopeful(view, &page, (level, compile), &refused, fitting)
    } else {
        Vec::new()
    };
    let fastest = |among: &mut dyn Iterator<Item = &Candidate>| {
        among
            .min_by(|a, b| order(a, b))
            .map(|found| Decision::Rehearse(found.place.spot))
    };
    if let Some(best) = best {
        // One rehearsal tells little of how fast others are.
        let worth = if n_rehearsed == 1 { 1.0 } else { WORTH };
        let enough = best.throughput.samples_per_second * worth;
        let faster = fastest(
            &mut hopeful
                .iter()
                .filter(|found| found.throughput.samples_per_second > enough),
        );
        // Before computing everything again is settled on, the other way is known at more than one point.
        let other_way = || {
            let spot = best.place.spot;
            let unsure = |checkpoint: usize| {
                !view.space.recomputes(checkpoint) && page.training_points(checkpoint) < 2
            };
            if !view.space.recomputes(spot.checkpoint) {
                return None;
            }
            let mut open = hopeful
                .iter()
                .filter(|found| unsure(found.place.spot.checkpoint));
            let same = (0..n_checkpoints)
                .filter(|checkpoint| unsure(*checkpoint) && n_rehearsed < most)
                .map(|checkpoint| RehearsalPoint { checkpoint, ..spot })
                .find(|spot| view.shape(*spot).is_none() && !is_ruled_out(view, *spot, &refused));
            fastest(&mut open).or(same.map(Decision::Rehearse))
        };
        return faster
            .or_else(other_way)
            .or_else(|| untold(view, &page, &best, &refused).filter(|_| n_rehearsed < most))
            .unwrap_or(Decision::Choose(best));
    }
    fastest(&mut hopeful.iter()).unwrap_or_else(|| {
        let lean = leanest(view, level, compile);
        if view.shape(lean).is_none() && !is_ruled_out(view, lean, &refused) {
            Decision::Rehearse(lean)
        } else {
            Decision::Nothing
        }
    })
}

/// A way of checkpointing of whose bytes too little is known to draw a line: on processors, where activations and workers
/// share the host, before it was rehearsed; on a card, before two rehearsals in which training took more than evaluation.
/// One is worth it if it would be faster if it fitted.
fn untold(
    view: &View<'_>,
    page: &LevelView<'_>,
    best: &Candidate,
    refused: &[RehearsalPoint],
) -> Option<Decision> {
    let on_cpu = view.on_cpu() == Some(true);
    let told = |checkpoint: usize| {
        let mut known = page.known.iter().map(|(spot, _)| spot);
        let mut failed = page.failed.iter().map(|(spot, _)| spot);
        page.training_points(checkpoint) > 1
            || (on_cpu && known.any(|spot| spot.checkpoint == checkpoint))
            || failed.any(|spot| spot.checkpoint == checkpoint)
    };
    let open = (0..view.space.checkpoints.len())
        .filter(|checkpoint| !told(*checkpoint))
        .flat_map(|checkpoint| {
            (0..view.space.micros.len()).map(move |micro| RehearsalPoint {
                checkpoint,
                micro,
                ..best.place.spot
            })
        });
    open.filter(|spot| view.shape(*spot).is_none() && !is_ruled_out(view, *spot, refused))
        .filter_map(|spot| {
            let rates = view.places(spot).map(|place| view.throughput(place));
            let rate = rates
                .map(|rate| rate.samples_per_second)
                .max_by(f64::total_cmp)?;
            (rate > best.throughput.samples_per_second * WORTH).then_some((rate, spot))
        })
        .min_by(|a, b| b.0.total_cmp(&a.0))
        .map(|(_, spot)| Decision::Rehearse(spot))
}

/// Spots that were not rehearsed and should fit, each with its best settings. `evals` are known to fit.
fn hopeful(
    view: &View<'_>,
    page: &LevelView<'_>,
    (level, compile): (usize, usize),
    refused: &[RehearsalPoint],
    mut evals: Vec<usize>,
) -> Vec<Candidate> {
    evals.push(evaluation_to_try(view, page));
    evals.sort_unstable();
    evals.dedup();
    let mut found = Vec::new();
    for eval in evals {
        for checkpoint in 0..view.space.checkpoints.len() {
            for micro in 0..view.space.micros.len() {
                let spot = RehearsalPoint {
                    level,
                    compile,
                    checkpoint,
                    eval,
                    micro,
                };
                if view.shape(spot).is_none() && !is_ruled_out(view, spot, refused) {
                    found.extend(best_at(view, spot));
                }
            }
        }
    }
    found
}

/// Something that needs no more was refused.
fn is_ruled_out(view: &View<'_>, spot: RehearsalPoint, refused: &[RehearsalPoint]) -> bool {
    refused
        .iter()
        .any(|refused| view.needs_at_least(spot, *refused))
}

/// The evaluation batch to rehearse with: the first that should fit by itself.
fn evaluation_to_try(view: &View<'_>, page: &LevelView<'_>) -> usize {
    let evals = &view.space.evals;
    let smallest = smallest_eval(view);
    let Some(limit) = fit::card_limit(view.room) else {
        return 0;
    };
    let fits = |index: &usize| {
        evals[*index]
            .and_then(|size| view.evaluation_bytes(page, size))
            .is_none_or(|bytes| bytes <= limit)
    };
    (0..evals.len()).find(fits).unwrap_or(smallest)
}

fn smallest_eval(view: &View<'_>) -> usize {
    let evals = &view.space.evals;
    (0..evals.len())
        .min_by_key(|index| evals[*index])
        .unwrap_or(0)
}

/// Smallest batches, most saving.
fn leanest(view: &View<'_>, level: usize, compile: usize) -> RehearsalPoint {
    let checkpoint = (0..view.space.checkpoints.len())
        .max_by_key(|index| view.space.saving(*index))
        .unwrap_or(0);
    RehearsalPoint {
        level,
        compile,
        checkpoint,
        eval: smallest_eval(view),
        micro: view.space.micros.len() - 1,
    }
}

/// The best settings of a spot that fit, by its rehearsal or by estimate.
pub(crate) fn best_at(view: &View<'_>, spot: RehearsalPoint) -> Option<Candidate> {
    view.places(spot)
        .filter_map(|place| candidate(view, place))
        .filter(|found| fit::fits(view.room, &found.taken) && died_of(view, found).is_none())
        .min_by(order)
}

fn plan(view: &View<'_>, best: &Candidate) -> Plan {
    let (host, gpu) = view.need(best.place).unwrap_or_default();
    Plan {
        settings: view.space.settings(best.place),
        effective_batch: view.space.effective,
        footprint: Need { host, gpu },
        brims: fit::brims(view.room, &best.taken),
        throughput: best.throughput,
        reasons: reasons(view, best),
        rungs: rungs(view, best.place),
        wanted: wanted_beside(view, best.place),
        candidates: considered(view, best.place),
    }
}

/// What the user would have started with, beside what is planned.
fn wanted_beside(view: &View<'_>, planned: CandidateIndex) -> WantedSettings {
    let settings = wanted(view.space.job, view.room);
    let chosen = view.space.settings(planned);
    let knobs = view.space.job.other_science().map(|knob| &knob.name);
    let result_changes = knobs
        .filter(|name| settings.0.get(*name) != chosen.0.get(*name))
        .cloned()
        .collect();
    let found = (view.space.place_of(&settings)).and_then(|place| candidate(view, place));
    WantedSettings {
        settings,
        brims: found.map_or_else(Vec::new, |found| fit::brims(view.room, &found.taken)),
        throughput: found.map(|found| found.throughput),
        result_changes,
    }
}
