//! What to try after a death, by its verdict.
//!
//! Only knobs that the verdict concerns are touched: a worker that was killed lowers the workers, a card in pieces
//! changes the allocator, an evaluation that did not fit changes the evaluation batch. The effective batch is kept, and
//! nothing is tried twice. What the run showed of itself counts as learnt (see `lessons.rs`).

use crate::explain::{Cause, Confidence, Verdict};
use crate::job::{Job, Settings, knobs};
use crate::plan::candidate::{Candidate, candidate, died_of, order};
use crate::plan::candidates::{CandidateIndex, RehearsalPoint, wanted};
use crate::plan::fit::{self, whole};
use crate::plan::learning;
use crate::plan::lessons::Lack;
use crate::plan::moves::{changes, changes_in_words, halved};
use crate::plan::view::{Computed, Needs, View};
use crate::plan::{LearntRun, MeasuredOn, Observed, PlanLimits, Revision, Shape};
use crate::predict::host::StartMethod;

/// A next try should need at most this share of what was lacking: the prediction was wrong once already.
const ENOUGH_LESS: f64 = 0.9;
/// Bytes kept free beside what processes were seen to hold.
const SPARE: f64 = 1.1;

/// What to try after `tried.last()` died of `verdict`.
pub fn revise(
    job: &Job,
    room: &PlanLimits,
    shapes: &[Shape],
    learnt: &[LearntRun],
    tried: &[Settings],
    verdict: &Verdict,
    observed: &Observed,
) -> Revision {
    let known = ReviseInput {
        job,
        room,
        shapes,
        learnt,
    };
    revise_with(&Computed, &known, tried, verdict, observed)
}

/// What is known of a job.
#[derive(Clone, Copy)]
pub(crate) struct ReviseInput<'a> {
    pub(crate) job: &'a Job,
    pub(crate) room: &'a PlanLimits,
    pub(crate) shapes: &'a [Shape],
    pub(crate) learnt: &'a [LearntRun],
}

pub(crate) fn revise_with(
    needs: &dyn Needs,
    known: &ReviseInput<'_>,
    tried: &[Settings],
    verdict: &Verdict,
    observed: &Observed,
) -> Revision {
    if verdict.confidence == Confidence::CannotTell || !verdict.cause.is_memory() {
        let why = if verdict.cause == Cause::NotMemory {
            "The run did not fail because of memory, so other settings would not help."
        } else {
            "The cause of the failure is unknown, so no settings are changed."
        };
        return give_up(why);
    }
    let died = tried
        .last()
        .cloned()
        .unwrap_or_else(|| wanted(known.job, known.room));
    let mut learnt = known.learnt.to_vec();
    learnt.push(LearntRun {
        at_unix_ms: u64::MAX,
        settings: died.clone(),
        cause: Some(verdict.cause),
        observed: observed.clone(),
        measured_on: Some(MeasuredOn::of(known.room, known.shapes)),
    });
    let view = learning::view(needs, known.job, known.room, known.shapes, &learnt);
    if view.space.is_empty() {
        return give_up("No knob has a valid value.");
    }
    let scene = Scene {
        at: view.space.place_near(&died),
        view: &view,
        cause: verdict.cause,
        seen: observed,
    };
    let options = match scene.options() {
        Ok(options) => options,
        Err(why) => return give_up(why),
    };
    let places: Vec<CandidateIndex> = tried
        .iter()
        .filter_map(|t| view.space.place_of(t))
        .collect();
    let is_new = |place: &CandidateIndex| {
        !places.contains(place) && !tried.contains(&view.space.settings(*place))
    };
    let repeats = |place: &CandidateIndex| {
        candidate(&view, *place).is_some_and(|found| died_of(&view, &found).is_some())
    };
    let new: Vec<CandidateIndex> = options.into_iter().filter(is_new).collect();
    let next = new.iter().find(|place| !repeats(place)).or(new.first());
    let Some(next) = next else {
        return give_up(scene.nothing_left());
    };
    let settings = view.space.settings(*next);
    let changed = changes(&died, &settings);
    Revision::Next {
        why: scene.why(&changed),
        settings,
        changed,
    }
}

fn give_up(why: &str) -> Revision {
    Revision::GiveUp {
        why: why.to_owned(),
    }
}

/// A death, and where it happened.
struct Scene<'v, 'a> {
    view: &'v View<'a>,
    at: CandidateIndex,
    cause: Cause,
    seen: &'v Observed,
}

impl Scene<'_, '_> {
    /// What may be tried, best first; or why nothing may.
    fn options(&self) -> Result<Vec<CandidateIndex>, &'static str> {
        let evaluating = self.seen.evaluating == Some(true);
        Ok(match self.cause {
            Cause::HostOomKill | Cause::DataloaderWorkerKilledOom | Cause::HostAllocFailed => {
                self.less_host()
            }
            Cause::ShmExhausted => self.less_shm(),
            Cause::FdOrShmLimit => self.half_the_workers(self.at),
            Cause::CudaOomFragmented => {
                let unsplit = self.view.space.with_expandable_segments(self.at);
                let less = if evaluating {
                    self.less_evaluation().unwrap_or_default()
                } else {
                    self.less_card()
                };
                unsplit.into_iter().chain(less).collect()
            }
            Cause::CudaOomExhausted if evaluating => self.less_evaluation()?,
            Cause::CudaOomExhausted => self.less_card(),
            Cause::CudaOomOtherProcess => self.beside_others()?,
            Cause::NotMemory | Cause::Ambiguous => Vec::new(),
        })
    }

    fn less_host(&self) -> Vec<CandidateIndex> {
        let space = &self.view.space;
        let mut options = Vec::new();
        if space.pipes[self.at.pipe].workers.is_some_and(|n| n > 0) {
            // Fork shares what the others copy.
            let forked = space
                .with_pipe(self.at, |pipe| {
                    pipe.start_method = pipe.start_method.map(|_| StartMethod::Fork);
                })
                .filter(|forked| *forked != self.at);
            options.extend(forked.filter(|forked| self.should_fit(*forked)));
            options.extend(self.fewer_workers(forked.unwrap_or(self.at)));
        }
        options.extend(space.lighter_pipes(self.at));
        if self.on_cpu() {
            if self.seen.evaluating == Some(true) {
                options.extend(self.less_evaluation().unwrap_or_default());
            }
            options.extend(self.smaller_model_state());
        }
        options.extend(self.sacrifices());
        options
    }

    /// The largest number of workers that fits by all that is known, then less.
    fn fewer_workers(&self, from: CandidateIndex) -> Vec<CandidateIndex> {
        let space = &self.view.space;
        let fewer = space.fewer_workers(from);
        let place = |n: u64| space.with_pipe(from, |pipe| pipe.workers = Some(n));
        let now = space.pipes[from.pipe].workers.unwrap_or(0);
        let (by_shapes, by_sight) = (self.view.is_known(from.spot), self.workers_by_sight());
        // A prediction that nothing measured has set right was wrong already.
        let trusted = by_sight.is_some() || (by_shapes && self.seen.host_used.is_some());
        let fits = |n: u64| {
            by_sight.is_none_or(|most| n <= most)
                && (trusted || n <= now / 2)
                && place(n).is_some_and(|place| !by_shapes || self.fits(place))
        };
        let best = fewer.iter().position(|n| fits(*n));
        let none = fewer.len().saturating_sub(1);
        fewer
            .iter()
            .skip(best.unwrap_or(none))
            .filter_map(|n| place(*n))
            .collect()
    }

    /// How many workers there is room for, by what processes were seen to hold.
    fn workers_by_sight(&self) -> Option<u64> {
        let limit = match (self.seen.host_limit, self.view.room.host) {
            (Some(then), Some(now)) => then.min(now),
            (then, now) => then.or(now)?,
        };
        let (main, worker) = (
            // What it shares with its workers is there once, however many they are.
            self.seen
                .main_private?
                .saturating_add(self.seen.main_shared.unwrap_or_default()),
            self.seen
                .worker_private_max
                .or(self.seen.worker_private_median)?,
        );
        let now = self.view.space.pipes[self.at.pipe].workers?;
        let left = (limit.get() as f64 / SPARE - main.get() as f64).max(0.0);
        Some(whole(left / worker.get().max(1) as f64).min(now))
    }

    fn half_the_workers(&self, from: CandidateIndex) -> Vec<CandidateIndex> {
        let space = &self.view.space;
        let now = space.pipes[from.pipe].workers.unwrap_or(0);
        let fewer = space.fewer_workers(from);
        let half = fewer.iter().position(|n| *n <= now / 2).unwrap_or(0);
        let place = |n: &u64| space.with_pipe(from, |pipe| pipe.workers = Some(*n));
        fewer.iter().skip(half).filter_map(place).collect()
    }

    fn less_shm(&self) -> Vec<CandidateIndex> {
        let space = &self.view.space;
        let prefetch = |n: u64| space.with_pipe(self.at, |pipe| pipe.prefetch = Some(n));
        let mut options: Vec<CandidateIndex> = space
            .less_prefetch(self.at)
            .into_iter()
            .filter_map(prefetch)
            .collect();
        let shallowest = options.last().copied().unwrap_or(self.at);
        options.extend(self.half_the_workers(shallowest));
        let known = self.view.is_known(self.at.spot);
        let fitting = options.iter().position(|place| self.should_fit(*place));
        if let Some(first) = fitting.filter(|_| known) {
            options.drain(..first);
        }
        options
    }

    /// Evaluation batches of half the size and less.
    fn less_evaluation(&self) -> Result<Vec<CandidateIndex>, &'static str> {
        let space = &self.view.space;
        let now = space.evals[self.at.spot.eval];
        if now.is_none() {
            return Err(
                "The run failed during evaluation, which training settings do not affect: make eval_batch a knob of the job.",
            );
        }
        let smaller = space.smaller_evals(self.at);
        let half = halved(now, &smaller);
        let chain = smaller.iter().map(|(_, place)| *place);
        Ok(chain.skip_while(|place| Some(*place) != half).collect())
    }

    fn less_card(&self) -> Vec<CandidateIndex> {
        let mut options = self.smaller_model_state();
        options.extend(self.sacrifices());
        options
    }

    /// Smaller micro-batches or checkpointing: what should fit and is fastest, then half of it and so on.
    fn smaller_model_state(&self) -> Vec<CandidateIndex> {
        let (view, space) = (self.view, &self.view.space);
        let mut fitting: Vec<Candidate> = Vec::new();
        for checkpoint in 0..space.checkpoints.len() {
            for micro in self.at.spot.micro..space.micros.len() {
                let spot = RehearsalPoint {
                    checkpoint,
                    micro,
                    ..self.at.spot
                };
                let place = CandidateIndex { spot, ..self.at };
                let saves = space.saving(checkpoint) >= space.saving(self.at.spot.checkpoint);
                if saves && place != self.at && self.should_fit(place) {
                    fitting.extend(candidate(view, place));
                }
            }
        }
        fitting.sort_by(order);
        let mut options: Vec<CandidateIndex> = fitting.iter().map(|found| found.place).collect();
        let smaller = space.smaller_micros(self.at);
        let half = halved(space.micros[self.at.spot.micro], &smaller);
        let chain = smaller.iter().map(|(_, place)| *place);
        options.extend(chain.skip_while(|place| Some(*place) != half));
        options.extend(space.more_saving(self.at));
        options
    }

    /// On a card that others use: what needs no more than this run was given before it died.
    fn beside_others(&self) -> Result<Vec<CandidateIndex>, &'static str> {
        const HELD: &str = "Another process holds GPU memory: stop it or use another GPU; no settings of this job are certain to fit.";
        let free = self.seen.gpu_reserved.ok_or(HELD)?.get();
        let space = &self.view.space;
        let small_enough = |place: &CandidateIndex| {
            let gpu = self.view.taken(*place).and_then(|taken| taken.gpu);
            gpu.is_some_and(|gpu| gpu.safe <= free)
        };
        let options: Vec<CandidateIndex> = space
            .smaller_micros(self.at)
            .into_iter()
            .map(|(_, place)| place)
            .chain(space.more_saving(self.at))
            .filter(small_enough)
            .collect();
        if options.is_empty() {
            Err(HELD)
        } else {
            Ok(options)
        }
    }

    /// What the user allows to give up, in that order.
    fn sacrifices(&self) -> impl Iterator<Item = CandidateIndex> {
        self.view.space.more_sacrifice(self.at)
    }

    fn on_cpu(&self) -> bool {
        let room = self.view.room;
        self.view.on_cpu().unwrap_or(room.gpus.is_empty())
    }

    /// Stays below the limits, by what is known now.
    fn fits(&self, place: CandidateIndex) -> bool {
        candidate(self.view, place).is_some_and(|found| {
            fit::fits(self.view.room, &found.taken) && died_of(self.view, &found).is_none()
        })
    }

    /// The same, and needs clearly less of what was lacking.
    fn should_fit(&self, place: CandidateIndex) -> bool {
        let lacking = |place: CandidateIndex| {
            let taken = self.view.taken(place)?;
            Lack::of(self.cause)?.bytes(&taken)
        };
        let less = match (lacking(place), lacking(self.at)) {
            (Some(next), Some(last)) => next as f64 <= last as f64 * ENOUGH_LESS,
            _ => false,
        };
        less && self.fits(place)
    }

    fn why(&self, changed: &[crate::plan::Change]) -> String {
        let what = match self.cause {
            Cause::HostOomKill => "Host memory ran out",
            Cause::DataloaderWorkerKilledOom => {
                "A DataLoader worker was killed because host memory ran out"
            }
            Cause::HostAllocFailed => "A host memory allocation failed",
            Cause::ShmExhausted => "/dev/shm was full",
            Cause::FdOrShmLimit => "A limit on open files or mappings was reached",
            Cause::CudaOomFragmented => "GPU memory was fragmented",
            Cause::CudaOomExhausted if self.seen.evaluating == Some(true) => {
                "GPU memory ran out during evaluation"
            }
            Cause::CudaOomOtherProcess => "Other processes hold GPU memory",
            _ => "GPU memory ran out",
        };
        let is_turned = |change: &&crate::plan::Change| change.knob != knobs::ACCUMULATION;
        let turned: Vec<crate::plan::Change> = changed.iter().filter(is_turned).cloned().collect();
        let kept = match self.view.space.effective {
            Some(batch) if turned.len() < changed.len() => {
                format!("; the effective batch size stays {batch}")
            }
            _ => String::new(),
        };
        format!("{what}, so {}{kept}.", changes_in_words(&turned))
    }

    fn nothing_left(&self) -> &'static str {
        match self.cause {
            Cause::CudaOomExhausted if self.seen.evaluating == Some(true) => {
                "The run failed during evaluation, and there is no smaller evaluation batch to try."
            }
            Cause::CudaOomExhausted | Cause::CudaOomFragmented | Cause::CudaOomOtherProcess => {
                "GPU memory ran out, and all settings of the job that need less of it have been tried."
            }
            Cause::ShmExhausted => {
                "/dev/shm was full, and all settings of the job that need less of it have been tried."
            }
            Cause::FdOrShmLimit => {
                "A limit on open files or mappings was reached, and the job does not allow fewer workers: raise the limit."
            }
            _ => {
                "Host memory ran out, and all settings of the job that need less of it have been tried."
            }
        }
    }
}
