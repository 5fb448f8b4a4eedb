//! What earlier runs change in a plan.
//!
//! - A run that died of memory, under the limit of today or a larger one: its settings, and all that need at least as
//!   much of what it lacked, are not planned again.
//! - A peak above what was predicted as likely: predictions of that kind are multiplied by the ratio, at most by
//!   [`MOST`].
//! - A rate, once a run made [`ENOUGH_STEPS`] steps on the same kind of machine: it stands in for the estimate at these
//!   settings, and the estimates of other settings are set right by it.

use std::collections::HashMap;

use crate::explain::Cause;
use crate::job::{Settings, knobs};
use crate::plan::candidates::{Place, Spot};
use crate::plan::cost::{self, RECOMPUTE};
use crate::plan::estimate::median;
use crate::plan::fit::{GpuSum, HostSum, Taken, times};
use crate::plan::view::View;
use crate::plan::{LearntRun, MeasuredOn, Observed, Reason};
use crate::units::Bytes;

/// Predictions are not multiplied by more: something else was measured then.
const MOST: f64 = 3.0;
/// Steps from which a rate is believed.
const ENOUGH_STEPS: u64 = 10;

/// What earlier runs change in a plan.
#[derive(Debug)]
pub(crate) struct Lessons {
    /// Factors on bytes.
    pub(crate) host: f64,
    pub(crate) shm: f64,
    pub(crate) gpu: f64,
    pub(crate) deaths: Vec<Death>,
    rates: HashMap<Place, f64>,
    /// Measured seconds of the card per sample.
    pub(crate) card_seconds: Option<f64>,
    /// Measured against estimated seconds on processors.
    pace: f64,
    pub(crate) reasons: Vec<Reason>,
}

/// What was lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Host,
    Shm,
    Card,
    /// No piece of the card was large enough, under one setting of the allocator.
    CardInOnePiece,
    /// Open files or mappings, which come with workers.
    Handles,
}

/// A run that died of memory.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    pub(crate) lack: Lack,
    pub(crate) settings: Settings,
    spot: Option<Spot>,
    /// What it needed of it, by the same reckoning as everything else.
    bytes: Option<u64>,
    evaluating: bool,
}

impl Default for Lessons {
    fn default() -> Lessons {
        Lessons {
            host: 1.0,
            shm: 1.0,
            gpu: 1.0,
            deaths: Vec::new(),
            rates: HashMap::new(),
            card_seconds: None,
            pace: 1.0,
            reasons: Vec::new(),
        }
    }
}

impl Lack {
    /// What a cause of death says was lacking; nothing where settings cannot help by what is known.
    pub(crate) fn of(cause: Cause) -> Option<Lack> {
        match cause {
            Cause::HostOomKill | Cause::DataloaderWorkerKilledOom | Cause::HostAllocFailed => {
                Some(Lack::Host)
            }
            Cause::ShmExhausted => Some(Lack::Shm),
            Cause::CudaOomExhausted => Some(Lack::Card),
            Cause::CudaOomFragmented => Some(Lack::CardInOnePiece),
            Cause::FdOrShmLimit => Some(Lack::Handles),
            Cause::CudaOomOtherProcess | Cause::NotMemory | Cause::Ambiguous => None,
        }
    }

    /// The bytes of it that are taken, for comparison.
    pub(crate) fn bytes(self, taken: &Taken) -> Option<u64> {
        match self {
            Lack::Host => Some(taken.host.safe),
            Lack::Shm => Some(taken.host.shm_safe),
            Lack::Card | Lack::CardInOnePiece => taken.gpu.map(|gpu| gpu.safe),
            Lack::Handles => None,
        }
    }
}

impl Lessons {
    /// Factors and rates; `view` has none yet.
    pub(crate) fn factors(view: &View<'_>, learnt: &[LearntRun]) -> Lessons {
        let mut lessons = Lessons::default();
        let mut newest: Vec<&LearntRun> = learnt.iter().collect();
        newest.sort_by_key(|run| run.at_unix_ms);
        let mut card = Vec::new();
        let mut paces = Vec::new();
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
                    card.push(seconds / work.micro.max(1) as f64 / again);
                }
            }
        }
        lessons.card_seconds = (!card.is_empty()).then(|| median(card.into_iter()));
        if !paces.is_empty() {
            lessons.pace = median(paces.into_iter());
        }
        lessons.tell();
        lessons
    }

    /// Raises the factors to what was seen.
    fn raise(&mut self, seen: &Observed, taken: &Taken) {
        let ratio = |seen: Option<Bytes>, likely: u64| match seen {
            Some(seen) if likely > 0 => (seen.get() as f64 / likely as f64).clamp(1.0, MOST),
            _ => 1.0,
        };
        self.host = self.host.max(ratio(seen.host_used, taken.host.likely));
        self.shm = self.shm.max(ratio(seen.shm_used, taken.host.shm_likely));
        if let Some(gpu) = taken.gpu {
            self.gpu = self.gpu.max(ratio(seen.gpu_reserved, gpu.likely));
        }
    }

    fn tell(&mut self) {
        let factors = [
            (self.host, "host memory"),
            (self.shm, "/dev/shm"),
            (self.gpu, "the card"),
        ];
        for (factor, what) in factors {
            if factor > 1.0 + 1e-3 {
                self.reasons.push(Reason {
                    kind: "learnt".to_owned(),
                    text: format!(
                        "an earlier run took {:.0} % more of {what} than predicted, so all predictions of it are raised by that",
                        (factor - 1.0) * 100.0
                    ),
                    ..Reason::default()
                });
            }
        }
    }

    /// Runs that died of memory and would die again.
    pub(crate) fn deaths(view: &View<'_>, learnt: &[LearntRun]) -> Vec<Death> {
        learnt
            .iter()
            .filter_map(|run| Death::of(view, run))
            .collect()
    }

    pub(crate) fn applied(&self, taken: Taken) -> Taken {
        let host = taken.host;
        Taken {
            host: HostSum {
                likely: times(host.likely, self.host),
                safe: times(host.safe, self.host),
                shm_likely: times(host.shm_likely, self.shm),
                shm_safe: times(host.shm_safe, self.shm),
            },
            gpu: taken.gpu.map(|gpu| GpuSum {
                likely: times(gpu.likely, self.gpu),
                safe: times(gpu.safe, self.gpu),
                fits: gpu.fits && self.gpu <= 1.0,
            }),
        }
    }

    pub(crate) fn rate(&self, place: Place) -> Option<f64> {
        self.rates.get(&place).copied()
    }

    pub(crate) fn cpu_pace(&self, on_cpu: bool) -> f64 {
        if on_cpu { self.pace } else { 1.0 }
    }
}

impl Death {
    fn of(view: &View<'_>, run: &LearntRun) -> Option<Death> {
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

    /// Whether a place would die of it too.
    pub(crate) fn excludes(&self, view: &View<'_>, place: Place, taken: &Taken) -> bool {
        let pipe = &view.space.pipes[place.pipe];
        let workers = self.settings.count(knobs::WORKERS);
        if self.lack == Lack::Handles {
            return workers.is_some() && pipe.workers >= workers;
        }
        let allocator = view.space.allocators[place.allocator].as_deref();
        if self.lack == Lack::CardInOnePiece && allocator != self.settings.text(knobs::ALLOCATOR) {
            return false;
        }
        let on_card = matches!(self.lack, Lack::Card | Lack::CardInOnePiece);
        if on_card && self.evaluating {
            let size = self.settings.count(knobs::EVAL_BATCH);
            if view.space.evals[place.spot.eval].is_some() && size.is_some() {
                let same = self.spot.is_some_and(|spot| {
                    (spot.level, spot.compile) == (place.spot.level, place.spot.compile)
                });
                return same && view.space.evals[place.spot.eval] >= size;
            }
        }
        match (self.bytes, self.lack.bytes(taken)) {
            (Some(then), Some(now)) => now >= then,
            _ => self.dominated(view, place, on_card),
        }
    }

    /// Without bytes: a place that has at least as much of everything that counts.
    fn dominated(&self, view: &View<'_>, place: Place, on_card: bool) -> bool {
        let Some(spot) = self.spot else { return false };
        let pipe = &view.space.pipes[place.pipe];
        let prefetch =
            |own: Option<u64>, theirs: Option<u64>| pipe.workers == Some(0) || own >= theirs;
        let more_data = pipe.workers >= self.settings.count(knobs::WORKERS)
            && prefetch(pipe.prefetch, self.settings.count(knobs::PREFETCH))
            && pipe.pin_memory >= self.settings.flag(knobs::PIN_MEMORY)
            && pipe.persistent >= self.settings.flag(knobs::PERSISTENT_WORKERS);
        view.needs_at_least(place.spot, spot) && (on_card || more_data)
    }
}

/// Samples per second of a run that made enough steps.
fn rate(view: &View<'_>, place: Place, seen: &Observed) -> Option<f64> {
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
