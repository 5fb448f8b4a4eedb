//! Learns from earlier runs: fills the [`Lessons`] of a [`View`].

use crate::job::Job;
use crate::job::knobs;
use crate::plan::candidates::CandidateIndex;
use crate::plan::cost::{self, RECOMPUTE};
use crate::plan::estimate::median;
use crate::plan::fit::Demand;
use crate::plan::lessons::{Death, Lack, Lessons};
use crate::plan::view::{Needs, View};
use crate::plan::{LearntRun, MeasuredOn, Observed, PlanLimits, Shape};

/// Share of a step from which the GPU is what it waits for.
const MIN_GPU_SHARE: f64 = 0.8;
/// Steps from which a rate is believed.
const ENOUGH_STEPS: u64 = 10;

/// A view of the rehearsals with what earlier runs change in it.
pub(crate) fn view<'a>(
    needs: &'a dyn Needs,
    job: &'a Job,
    room: &'a PlanLimits,
    shapes: &'a [Shape],
    learnt: &[LearntRun],
) -> View<'a> {
    let mut view = View::new(needs, job, room, shapes);
    if !view.space.is_empty() {
        let lessons = factors(&view, learnt);
        view.learn(lessons);
        // Deaths are weighed with the factors, times with the bytes behind them.
        let deaths = deaths(&view, learnt);
        view.learn_deaths(deaths);
    }
    view
}

/// Whether a place would die of it too.
pub(crate) fn excludes(
    death: &Death,
    view: &View<'_>,
    place: CandidateIndex,
    taken: &Demand,
) -> bool {
    let pipe = &view.space.pipes[place.pipe];
    let workers = death.settings.count(knobs::WORKERS);
    if death.lack == Lack::Handles {
        return workers.is_some() && pipe.workers >= workers;
    }
    let allocator = view.space.allocators[place.allocator].as_deref();
    if death.lack == Lack::CardInOnePiece && allocator != death.settings.text(knobs::ALLOCATOR) {
        return false;
    }
    let on_card = matches!(death.lack, Lack::Card | Lack::CardInOnePiece);
    if on_card && death.evaluating {
        let size = death.settings.count(knobs::EVAL_BATCH);
        if view.space.evals[place.spot.eval].is_some() && size.is_some() {
            let same = death.spot.is_some_and(|spot| {
                (spot.level, spot.compile) == (place.spot.level, place.spot.compile)
            });
            return same && view.space.evals[place.spot.eval] >= size;
        }
    }
    match (death.bytes, death.lack.bytes(taken)) {
        (Some(then), Some(now)) => now >= then,
        _ => dominated(death, view, place, on_card),
    }
}

/// Factors and rates; `view` has none yet.
fn factors(view: &View<'_>, learnt: &[LearntRun]) -> Lessons {
    let mut lessons = Lessons::default();
    let mut newest: Vec<&LearntRun> = learnt.iter().collect();
    newest.sort_by_key(|run| run.at_unix_ms);
    let mut card = Vec::new();
    let mut paces = Vec::new();
    let mut gpu_paces = Vec::new();
    let here = MeasuredOn::of(view.room, view.shapes());
    for run in newest {
        let Some(place) = view.space.place_of(&run.settings) else {
            continue;
        };
        // A run on CPUs, or on another GPU, says nothing about the speed here.
        let is_like = |on: &MeasuredOn| on.is_like(&here);
        let rate = rate(view, place, &run.observed)
            .filter(|_| run.measured_on.as_ref().is_some_and(is_like));
        if let Some(rate) = rate {
            lessons.rates.insert(place, rate);
        }
        if !view.is_known(place.spot) {
            continue;
        }
        if let Some(taken) = view.taken(place) {
            lessons.raise(&run.observed, &taken);
        }
        if let Some(rate) = rate {
            let (work, feed) = view.work(place);
            let seconds = work.micro as f64 * work.world.max(1) as f64 / rate;
            let estimated = cost::micro_step_seconds(&work, feed, view.room.cpus);
            if work.on_cpu {
                paces.push((seconds / estimated).clamp(0.2, 5.0));
            } else {
                let again = if work.recomputes { RECOMPUTE } else { 1.0 };
                let per_sample = seconds / work.micro.max(1) as f64 / again;
                card.push(per_sample);
                // A run that waits for its data or for launches does not measure the GPU.
                let on_gpu = work.card_seconds * work.micro.max(1) as f64 * again;
                if view.has_gpu_times(place) && on_gpu >= MIN_GPU_SHARE * estimated {
                    gpu_paces.push((seconds / estimated).clamp(0.05, 20.0));
                }
            }
        }
    }
    lessons.card_seconds = (!card.is_empty()).then(|| median(card.into_iter()));
    lessons.gpu_pace = (!gpu_paces.is_empty()).then(|| median(gpu_paces.into_iter()));
    if !paces.is_empty() {
        lessons.pace = median(paces.into_iter());
    }
    lessons.tell();
    lessons
}

/// Runs that died of memory and would die again.
fn deaths(view: &View<'_>, learnt: &[LearntRun]) -> Vec<Death> {
    learnt.iter().filter_map(|run| death(view, run)).collect()
}

fn death(view: &View<'_>, run: &LearntRun) -> Option<Death> {
    let lack = Lack::of(run.cause?)?;
    // Under a smaller limit than today's it tells nothing.
    if let (Lack::Host, Some(then), Some(now)) = (lack, run.observed.host_limit, view.room.host)
        && then < now
    {
        return None;
    }
    let spot = view.space.spot_of(&run.settings);
    let bytes = view
        .space
        .place_of(&run.settings)
        .filter(|place| view.is_known(place.spot))
        .and_then(|place| lack.bytes(&view.taken(place)?));
    Some(Death {
        lack,
        settings: run.settings.clone(),
        spot,
        bytes,
        evaluating: run.observed.evaluating == Some(true),
    })
}

/// Without bytes: a place that has at least as much of everything that counts.
fn dominated(death: &Death, view: &View<'_>, place: CandidateIndex, on_card: bool) -> bool {
    let Some(spot) = death.spot else { return false };
    let pipe = &view.space.pipes[place.pipe];
    let prefetch = |own: Option<u64>, theirs: Option<u64>| pipe.workers == Some(0) || own >= theirs;
    let more_data = pipe.workers >= death.settings.count(knobs::WORKERS)
        && prefetch(pipe.prefetch, death.settings.count(knobs::PREFETCH))
        && pipe.pin_memory >= death.settings.flag(knobs::PIN_MEMORY)
        && pipe.persistent >= death.settings.flag(knobs::PERSISTENT_WORKERS);
    view.needs_at_least(place.spot, spot) && (on_card || more_data)
}

/// Samples per second of a run that made enough steps.
fn rate(view: &View<'_>, place: CandidateIndex, seen: &Observed) -> Option<f64> {
    let steps = seen
        .steps_per_second()
        .filter(|_| seen.timed_steps >= ENOUGH_STEPS)?;
    let (work, _) = view.work(place);
    let batch = view
        .space
        .effective
        .unwrap_or_else(|| work.micro.saturating_mul(work.world.max(1)));
    let rate = steps * batch as f64;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}
