//! What each combination of settings takes and how fast it is, by what was rehearsed and learnt.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::job::Job;
use crate::plan::candidates::{CandidateIndex, RehearsalPoint, Space};
use crate::plan::cost::{self, Feed, RECOMPUTE, Work};
use crate::plan::estimate::{Line, Points, card_line, median};
use crate::plan::fit::{Demand, GpuSum, HostSum, times, whole};
use crate::plan::lessons::{Death, Lessons};
use crate::plan::pipe::Pipe;
use crate::plan::{GpuNeed, PlanLimits, RateSource, Shape, Throughput};
use crate::predict::host::{HostNeed, Pipeline, host_need};

/// Where the host's bytes come from; a parameter, so that laws can be tested with bytes of any form.
pub(crate) trait Needs {
    fn host(&self, shape: &Shape, pipeline: &Pipeline) -> HostNeed;
}

/// From the facts of the rehearsal.
pub(crate) struct Computed;

impl Needs for Computed {
    fn host(&self, shape: &Shape, pipeline: &Pipeline) -> HostNeed {
        host_need(&shape.host, pipeline)
    }
}

type Cache<K, V> = RefCell<HashMap<K, V>>;
type Rehearsed<'a> = Vec<(RehearsalPoint, &'a Shape)>;

/// All that is known about a job's combinations.
pub(crate) struct View<'a> {
    pub(crate) space: Space<'a>,
    pub(crate) room: &'a PlanLimits,
    pub(crate) lessons: Lessons,
    needs: &'a dyn Needs,
    /// The newest rehearsal of each spot.
    shapes: BTreeMap<RehearsalPoint, &'a Shape>,
    pages: Cache<(usize, usize), Rc<LevelView<'a>>>,
    hosts: Cache<(RehearsalPoint, usize), Option<HostSum>>,
    cards: Cache<(RehearsalPoint, usize), Option<Option<GpuSum>>>,
    works: Cache<RehearsalPoint, Work>,
    nears: Cache<RehearsalPoint, Rc<Rehearsed<'a>>>,
}

/// What was rehearsed at one level of science with one value of `compile`.
pub(crate) struct LevelView<'a> {
    /// Rehearsed to their first steps.
    pub(crate) known: Rehearsed<'a>,
    pub(crate) failed: Vec<(RehearsalPoint, &'a str)>,
    /// The card's bytes in training, by checkpointing, then by allocator: likely and safe.
    training: Vec<Vec<[Points; 2]>>,
    /// Where evaluation took more than training: no more than that.
    bounds: Vec<Vec<[Points; 2]>>,
    /// The least that any rehearsal took of the card, by allocator.
    least: Vec<[f64; 2]>,
    /// The same in evaluation, by the size of its batch.
    evaluation: Vec<[Points; 2]>,
    steps: Vec<Points>,
    sample_seconds: f64,
    handover_seconds: f64,
    on_cpu: bool,
    /// Seconds of the GPU for a micro-batch by the model of its speed, by checkpointing; computing again is in them.
    gpu_steps: Vec<Points>,
    /// Seconds per sample where the model says nothing.
    card_seconds: f64,
}

impl<'a> View<'a> {
    pub(crate) fn new(
        needs: &'a dyn Needs,
        job: &'a Job,
        room: &'a PlanLimits,
        shapes: &'a [Shape],
    ) -> View<'a> {
        let space = Space::new(job, room, shapes);
        let mut newest: BTreeMap<RehearsalPoint, &Shape> = BTreeMap::new();
        for shape in shapes {
            if let Some(spot) = space.spot_of(&shape.settings) {
                let kept = newest.entry(spot).or_insert(shape);
                if shape.rehearsed_at_unix_ms >= kept.rehearsed_at_unix_ms {
                    *kept = shape;
                }
            }
        }
        View {
            space,
            room,
            lessons: Lessons::default(),
            needs,
            shapes: newest,
            pages: RefCell::default(),
            hosts: RefCell::default(),
            cards: RefCell::default(),
            works: RefCell::default(),
            nears: RefCell::default(),
        }
    }

    /// What was rehearsed.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = &'a Shape> {
        self.shapes.values().copied()
    }

    /// Applies the factors and rates of earlier runs.
    pub(crate) fn learn(&mut self, lessons: Lessons) {
        self.lessons = lessons;
    }

    /// Excludes what killed earlier runs, and forgets what was computed without the lessons.
    pub(crate) fn learn_deaths(&mut self, deaths: Vec<Death>) {
        self.lessons.deaths = deaths;
        self.pages.borrow_mut().clear();
        self.works.borrow_mut().clear();
    }

    pub(crate) fn shape(&self, spot: RehearsalPoint) -> Option<&'a Shape> {
        self.shapes.get(&spot).copied()
    }

    /// A rehearsal of it came to its first steps.
    pub(crate) fn is_known(&self, spot: RehearsalPoint) -> bool {
        self.shape(spot).is_some_and(|shape| shape.failed.is_none())
    }

    /// Every rehearsal that came to its first steps.
    pub(crate) fn known(&self) -> impl Iterator<Item = (RehearsalPoint, &'a Shape)> {
        self.shapes
            .iter()
            .filter(|(_, shape)| shape.failed.is_none())
            .map(|(spot, shape)| (*spot, *shape))
    }

    pub(crate) fn failed(&self) -> impl Iterator<Item = (RehearsalPoint, &'a str)> {
        self.shapes
            .iter()
            .filter_map(|(spot, shape)| Some((*spot, shape.failed.as_deref()?)))
    }

    /// Whether the job trains on processors; nothing before it was rehearsed.
    pub(crate) fn on_cpu(&self) -> Option<bool> {
        let mut known = self.known().peekable();
        known.peek()?;
        Some(known.all(|(_, shape)| shape.gpu.is_empty()))
    }

    /// All places of a spot.
    pub(crate) fn places(
        &self,
        spot: RehearsalPoint,
    ) -> impl Iterator<Item = CandidateIndex> + use<'a> {
        let (pipes, allocators) = (self.space.pipes.len(), self.space.allocators.len());
        (0..pipes).flat_map(move |pipe| {
            (0..allocators).map(move |allocator| CandidateIndex {
                spot,
                pipe,
                allocator,
            })
        })
    }

    /// What a place takes, from its own rehearsal or else from those beside it; nothing where none is known, or where
    /// the setting of the allocator was not replayed.
    pub(crate) fn taken(&self, place: CandidateIndex) -> Option<Demand> {
        let host = self.host(place.spot, place.pipe)?;
        let allocator = place.allocator;
        let gpu = match self.shape(place.spot).filter(|_| self.is_known(place.spot)) {
            Some(shape) if shape.gpu.is_empty() => None,
            Some(shape) => {
                let need = gpu_need(shape, self.space.allocators[allocator].as_deref())?;
                Some(GpuSum {
                    likely: need.likely.get(),
                    safe: need.safe.get(),
                    fits: need.fits,
                })
            }
            None => self.card(place.spot, allocator)?,
        };
        Some(self.lessons.applied(Demand { host, gpu }))
    }

    /// The terms of a known place, as rehearsed.
    pub(crate) fn need(&self, place: CandidateIndex) -> Option<(HostNeed, Option<GpuNeed>)> {
        let shape = self.shape(place.spot)?;
        let pipe = &self.space.pipes[place.pipe];
        let pipeline = pipe.pipeline(&shape.host, self.space.micros[place.spot.micro]);
        let allocator = self.space.allocators[place.allocator].as_deref();
        Some((
            self.needs.host(shape, &pipeline),
            gpu_need(shape, allocator).cloned(),
        ))
    }

    fn host(&self, spot: RehearsalPoint, pipe: usize) -> Option<HostSum> {
        if let Some(known) = self.hosts.borrow().get(&(spot, pipe)) {
            return *known;
        }
        let sum = self.host_of(spot, &self.space.pipes[pipe], Some(pipe));
        self.hosts.borrow_mut().insert((spot, pipe), sum);
        sum
    }

    /// Of any pipeline; `index` is its place in the list, where it has one.
    pub(crate) fn host_of(
        &self,
        spot: RehearsalPoint,
        pipe: &Pipe,
        index: Option<usize>,
    ) -> Option<HostSum> {
        let of = |shape: &Shape, micro: Option<u64>| {
            let need = self.needs.host(shape, &pipe.pipeline(&shape.host, micro));
            HostSum {
                likely: need.likely.get(),
                safe: need.safe.get(),
                shm_likely: need.shm_likely.get(),
                shm_safe: need.shm_safe.get(),
            }
        };
        let micro_of = |spot: RehearsalPoint| self.space.micros[spot.micro];
        if let Some(shape) = self.shape(spot).filter(|shape| shape.failed.is_none()) {
            return Some(of(shape, micro_of(spot)));
        }
        let near = Rc::clone(
            self.nears
                .borrow_mut()
                .entry(spot)
                .or_insert_with(|| Rc::new(self.page(spot.level, spot.compile).near(spot))),
        );
        let (first, shape) = *near.first()?;
        let alike = |other: RehearsalPoint| {
            (other.eval, other.checkpoint) == (first.eval, first.checkpoint)
        };
        let beside = near
            .iter()
            .find(|(other, _)| alike(*other) && other.micro != first.micro);
        let (Some((second, other)), Some(micro)) = (beside, micro_of(spot)) else {
            return Some(of(shape, micro_of(spot)));
        };
        let sum_at =
            |spot: RehearsalPoint, shape: &Shape| match index.filter(|_| self.is_known(spot)) {
                Some(index) => self.host(spot, index).unwrap_or_default(),
                None => of(shape, micro_of(spot)),
            };
        let sums = [
            (first, sum_at(first, shape)),
            (*second, sum_at(*second, other)),
        ];
        let line = |figure: fn(&HostSum) -> u64| {
            let points: Points = sums
                .iter()
                .map(|(spot, sum)| (micro_of(*spot).unwrap_or(1), figure(sum) as f64))
                .collect();
            Line::through(&points, micro).map_or(0, |line| whole(line.at(micro)))
        };
        Some(HostSum {
            likely: line(|sum| sum.likely),
            safe: line(|sum| sum.safe),
            shm_likely: line(|sum| sum.shm_likely),
            shm_safe: line(|sum| sum.shm_safe),
        })
    }

    /// An estimate for a spot that was not rehearsed: `Some(None)` for a job on processors.
    fn card(&self, spot: RehearsalPoint, allocator: usize) -> Option<Option<GpuSum>> {
        if let Some(known) = self.cards.borrow().get(&(spot, allocator)) {
            return *known;
        }
        let sum = self.new_card(spot, allocator);
        self.cards.borrow_mut().insert((spot, allocator), sum);
        sum
    }

    fn new_card(&self, spot: RehearsalPoint, allocator: usize) -> Option<Option<GpuSum>> {
        let page = self.page(spot.level, spot.compile);
        if page.known.is_empty() {
            return None;
        }
        if page.known.iter().all(|(_, shape)| shape.gpu.is_empty()) {
            return Some(None);
        }
        let micro = self.space.micros[spot.micro].unwrap_or(1);
        let training =
            |which: usize| self.training_line(&page, spot.checkpoint, allocator, which, micro);
        let size = self.space.evals[spot.eval].unwrap_or(1);
        let evaluation = |which: usize| page.evaluation_at(allocator, which, size);
        // Where evaluation was always the fullest moment, nothing is known of training: it is let through.
        let bytes = |which: usize| {
            let training = training(which).map_or(0.0, |line| line.at(micro));
            whole(training.max(evaluation(which)))
        };
        // What holds more holds less.
        let fits = page.known.iter().any(|(known, shape)| {
            let beside = gpu_need(shape, self.space.allocators[allocator].as_deref());
            self.needs_at_least(*known, spot)
                && known.checkpoint == spot.checkpoint
                && beside.is_some_and(|need| need.fits)
        });
        Some(Some(GpuSum {
            likely: bytes(0),
            safe: bytes(1),
            fits,
        }))
    }

    fn training_line(
        &self,
        page: &LevelView<'_>,
        checkpoint: usize,
        allocator: usize,
        which: usize,
        micro: u64,
    ) -> Option<Line> {
        let points = |checkpoint: usize| &page.training[checkpoint][allocator][which];
        let other = (0..self.space.checkpoints.len())
            .filter(|other| *other != checkpoint)
            .max_by_key(|other| points(*other).len());
        let own = points(checkpoint);
        let line_of_own = card_line(
            own,
            other.map_or(&[], |other| points(other)),
            self.space.recomputes(checkpoint),
            other.is_some_and(|other| self.space.recomputes(other)),
            (micro, page.least[allocator][which]),
        )?;
        // Where evaluation took more than training at the other points, nothing is known but that training took less:
        // it is let through as if all of it grew.
        let [(only, bytes)] = own[..] else {
            return Some(line_of_own);
        };
        let bounds = &page.bounds[checkpoint][allocator][which];
        if micro < only && bounds.iter().any(|point| point.0 < only) {
            return Some(Line {
                base: 0.0,
                slope: bytes / only as f64,
            });
        }
        Some(line_of_own)
    }

    /// The bytes of evaluation alone, scaled by what was learnt; nothing where it was never rehearsed.
    pub(crate) fn evaluation_bytes(&self, page: &LevelView<'_>, size: u64) -> Option<u64> {
        let least = (0..self.space.allocators.len())
            .filter(|allocator| !page.evaluation[*allocator][1].is_empty())
            .map(|allocator| page.evaluation_at(allocator, 1, size))
            .min_by(f64::total_cmp)?;
        Some(times(whole(least), self.lessons.gpu))
    }

    /// At the same level, `more` needs at least what `less` needs: bytes grow with both batches, and shrink with
    /// checkpointing.
    pub(crate) fn needs_at_least(&self, more: RehearsalPoint, less: RehearsalPoint) -> bool {
        let (micros, evals) = (&self.space.micros, &self.space.evals);
        (more.level, more.compile) == (less.level, less.compile)
            && micros[more.micro] >= micros[less.micro]
            && evals[more.eval] >= evals[less.eval]
            && self.space.saving(more.checkpoint) <= self.space.saving(less.checkpoint)
    }

    pub(crate) fn throughput(&self, place: CandidateIndex) -> Throughput {
        if let Some(rate) = self.lessons.rate(place) {
            return Throughput {
                samples_per_second: rate,
                from: RateSource::Measured,
            };
        }
        let (work, feed) = self.work(place);
        let is_calculated = self.has_gpu_times(place);
        Throughput {
            samples_per_second: cost::samples_per_second(&work, feed, self.room.cpus),
            from: if is_calculated {
                RateSource::Calculated
            } else {
                RateSource::Estimated
            },
        }
    }

    /// Whether the model of the GPU's speed knows something about the settings.
    pub(crate) fn has_gpu_times(&self, place: CandidateIndex) -> bool {
        let page = self.page(place.spot.level, place.spot.compile);
        page.gpu_steps.iter().any(|points| !points.is_empty())
    }

    /// What goes into the cost model.
    pub(crate) fn work(&self, place: CandidateIndex) -> (Work, Feed) {
        let spot = place.spot;
        let known = self.works.borrow().get(&spot).copied();
        let work = known.unwrap_or_else(|| {
            let work = self.new_work(spot);
            self.works.borrow_mut().insert(spot, work);
            work
        });
        let pipe = &self.space.pipes[place.pipe];
        // What is no knob is the same for all, so that nothing hangs on it.
        let feed = Feed {
            workers: pipe.workers.unwrap_or(work.rehearsed_workers),
            prefetch: pipe.prefetch.unwrap_or(2),
            pin_memory: pipe.pin_memory.unwrap_or(true),
            persistent: pipe.persistent.unwrap_or(true),
        };
        (work, feed)
    }

    fn new_work(&self, spot: RehearsalPoint) -> Work {
        let page = self.page(spot.level, spot.compile);
        let facts = page.known.first().map(|(_, shape)| &shape.host);
        let micro = self.space.micros[spot.micro].or_else(|| facts.map(|facts| facts.micro_batch));
        Work {
            micro: micro.unwrap_or(1).max(1),
            world: self.space.world,
            step_seconds: self.step_seconds(&page, spot) * self.lessons.cpu_pace(page.on_cpu),
            card_seconds: self.card_seconds(&page, spot, micro.unwrap_or(1).max(1)),
            recomputes: self.space.recomputes(spot.checkpoint),
            on_cpu: page.on_cpu,
            sample_seconds: page.sample_seconds,
            handover_seconds: page.handover_seconds,
            rehearsed_workers: facts.map_or(0, |facts| facts.workers),
        }
    }

    /// Seconds of the GPU per sample, without computing again.
    fn card_seconds(&self, page: &LevelView<'_>, spot: RehearsalPoint, micro: u64) -> f64 {
        let own = &page.gpu_steps[spot.checkpoint];
        let (points, recomputes) = if own.is_empty() {
            let other = (0..page.gpu_steps.len()).find(|other| !page.gpu_steps[*other].is_empty());
            let Some(other) = other else {
                return page.card_seconds;
            };
            (&page.gpu_steps[other], self.space.recomputes(other))
        } else {
            (own, self.space.recomputes(spot.checkpoint))
        };
        let again = if recomputes { RECOMPUTE } else { 1.0 };
        seconds_per_sample(points, micro) / again * self.lessons.gpu_pace.unwrap_or(1.0)
    }

    fn step_seconds(&self, page: &LevelView<'_>, spot: RehearsalPoint) -> f64 {
        let micro = self.space.micros[spot.micro].unwrap_or(1);
        let (points, ratio) = if page.steps[spot.checkpoint].is_empty() {
            let other = (0..page.steps.len()).find(|other| !page.steps[*other].is_empty());
            let Some(other) = other else { return 0.0 };
            let (from, to) = (
                self.space.recomputes(other),
                self.space.recomputes(spot.checkpoint),
            );
            let ratio = match (from, to) {
                (false, true) => RECOMPUTE,
                (true, false) => 1.0 / RECOMPUTE,
                _ => 1.0,
            };
            (&page.steps[other], ratio)
        } else {
            (&page.steps[spot.checkpoint], 1.0)
        };
        // Launching takes as long for a small batch as for a large one.
        if !page.on_cpu {
            return median(points.iter().map(|point| point.1)) * ratio;
        }
        if let Some((_, seconds)) = points.iter().find(|point| point.0 == micro) {
            return seconds * ratio;
        }
        match (Line::through(points, micro), points.first()) {
            (Some(line), _) => line.at(micro) * ratio,
            (None, Some((rehearsed, seconds))) => {
                cost::scaled_step(*seconds, *rehearsed, micro) * ratio
            }
            (None, None) => 0.0,
        }
    }

    pub(crate) fn page(&self, level: usize, compile: usize) -> Rc<LevelView<'a>> {
        if let Some(page) = self.pages.borrow().get(&(level, compile)) {
            return Rc::clone(page);
        }
        let page = Rc::new(self.new_page(level, compile));
        self.pages
            .borrow_mut()
            .insert((level, compile), Rc::clone(&page));
        page
    }

    fn new_page(&self, level: usize, compile: usize) -> LevelView<'a> {
        let here = |spot: &RehearsalPoint| (spot.level, spot.compile) == (level, compile);
        let known: Rehearsed<'_> = self.known().filter(|(spot, _)| here(spot)).collect();
        let failed = self.failed().filter(|(spot, _)| here(spot)).collect();
        let n_allocators = self.space.allocators.len();
        let mut training =
            vec![vec![<[Points; 2]>::default(); n_allocators]; self.space.checkpoints.len()];
        let mut bounds = training.clone();
        let mut least = vec![[f64::INFINITY; 2]; n_allocators];
        let mut evaluation = vec![<[Points; 2]>::default(); n_allocators];
        let mut steps = vec![Points::new(); self.space.checkpoints.len()];
        let mut gpu_steps = steps.clone();
        let has_gpu_time =
            |shape: &Shape| shape.pace.gpu_seconds > 0.0 && shape.pace.gpu_seconds.is_finite();
        let some_have = known.iter().any(|(_, shape)| has_gpu_time(shape));
        for (spot, shape) in &known {
            let micro = self.space.micros[spot.micro].unwrap_or(1);
            if has_gpu_time(shape) {
                gpu_steps[spot.checkpoint].push((micro, shape.pace.gpu_seconds));
            }
            // Launching by the model and as a rehearsal was slowed down by what watches it do not go together.
            if has_gpu_time(shape) == some_have {
                steps[spot.checkpoint].push((micro, shape.pace.step_seconds));
            }
            for (allocator, name) in self.space.allocators.iter().enumerate() {
                let Some(need) = gpu_need(shape, name.as_deref()) else {
                    continue;
                };
                let spare = need.safe.share_of(need.likely).max(1.0);
                let alone = need.evaluation.map_or(0.0, |bytes| bytes.get() as f64);
                if alone > 0.0 {
                    let size = self.space.evals[spot.eval].unwrap_or(1);
                    evaluation[allocator][0].push((size, alone));
                    evaluation[allocator][1].push((size, alone * spare));
                }
                least[allocator][0] = least[allocator][0].min(need.likely.get() as f64);
                least[allocator][1] = least[allocator][1].min(need.safe.get() as f64);
                let trains = alone < need.likely.get() as f64;
                let figures = if trains {
                    &mut training[spot.checkpoint][allocator]
                } else {
                    &mut bounds[spot.checkpoint][allocator]
                };
                figures[0].push((micro, need.likely.get() as f64));
                figures[1].push((micro, need.safe.get() as f64));
            }
        }
        let paces = || known.iter().map(|(_, shape)| shape.pace);
        let on_cpu = !known.is_empty() && known.iter().all(|(_, shape)| shape.pace.on_cpu);
        let growth = training
            .iter()
            .flatten()
            .filter_map(|figures| {
                let likely = &figures[0];
                let middle = likely.first()?.0;
                let line =
                    Line::through(likely, middle).unwrap_or(Line::guess(likely[0], f64::INFINITY));
                Some(line.slope)
            })
            .fold(0.0, f64::max);
        LevelView {
            training,
            bounds,
            least,
            evaluation,
            steps,
            sample_seconds: median(paces().map(|pace| pace.sample_seconds)),
            handover_seconds: median(paces().map(|pace| pace.handover_seconds)),
            on_cpu,
            gpu_steps,
            card_seconds: self
                .lessons
                .card_seconds
                .unwrap_or_else(|| cost::card_seconds_of(growth)),
            known,
            failed,
        }
    }
}

impl<'a> LevelView<'a> {
    /// Rehearsed points of training on the card.
    pub(crate) fn training_points(&self, checkpoint: usize) -> usize {
        let figures = self.training[checkpoint].iter();
        figures.map(|figures| figures[1].len()).max().unwrap_or(0)
    }

    /// Known rehearsals, those that tell most about `spot` first.
    fn near(&self, spot: RehearsalPoint) -> Rehearsed<'a> {
        let mut near = self.known.clone();
        near.sort_by_key(|(known, _)| {
            (
                known.eval.abs_diff(spot.eval),
                known.checkpoint != spot.checkpoint,
                known.micro.abs_diff(spot.micro),
            )
        });
        near
    }

    fn evaluation_at(&self, allocator: usize, which: usize, size: u64) -> f64 {
        let points = &self.evaluation[allocator][which];
        Line::through(points, size)
            .or_else(|| {
                points
                    .first()
                    .map(|point| Line::guess(*point, f64::INFINITY))
            })
            .map_or(0.0, |line| line.at(size))
    }
}

/// Under the setting of the allocator; the job's own where it is no knob.
fn gpu_need<'s>(shape: &'s Shape, allocator: Option<&str>) -> Option<&'s GpuNeed> {
    match allocator {
        None => shape.gpu.first(),
        Some(name) => shape.gpu.iter().find(|need| need.allocator == name),
    }
}

/// Seconds of the GPU per sample at a micro-batch, from those of others. A larger batch takes no longer per sample.
fn seconds_per_sample(points: &[(u64, f64)], micro: u64) -> f64 {
    let mut sorted = points.to_vec();
    sorted.sort_by_key(|point| point.0);
    let mut least = f64::INFINITY;
    let known: Vec<(u64, f64)> = sorted
        .into_iter()
        .map(|(at, seconds)| {
            least = least.min(seconds / at.max(1) as f64);
            (at, least)
        })
        .collect();
    let above = known.partition_point(|point| point.0 < micro);
    match (above.checked_sub(1).map(|at| known[at]), known.get(above)) {
        (_, Some(&(at, seconds))) if at == micro => seconds,
        (Some((low, slow)), Some(&(high, fast))) => {
            let share = (micro - low) as f64 / (high - low).max(1) as f64;
            slow + (fast - slow) * share
        }
        (None, Some(&(at, seconds))) => {
            cost::scaled_step(seconds * at.max(1) as f64, at, micro) / micro.max(1) as f64
        }
        (Some((_, seconds)), None) => seconds,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::seconds_per_sample;

    #[test]
    fn a_rehearsed_batch_keeps_its_time() {
        let points = [(64, 1.28), (128, 1.92)];
        assert!((seconds_per_sample(&points, 64) - 0.02).abs() < 1e-12);
        assert!((seconds_per_sample(&points, 128) - 0.015).abs() < 1e-12);
        assert!((seconds_per_sample(&points, 96) - 0.0175).abs() < 1e-12);
        assert!((seconds_per_sample(&points, 512) - 0.015).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_larger_batch_takes_no_longer_per_sample(
            points in prop::collection::vec((1..2000_u64, 0.001..10.0_f64), 0..5), micro in 1..4000_u64, more in 0..4000_u64,
        ) {
            let small = seconds_per_sample(&points, micro);
            let large = seconds_per_sample(&points, micro + more);
            prop_assert!(large <= small * (1.0 + 1e-9), "{large} {small}");
        }
    }
}
