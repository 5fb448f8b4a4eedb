//! Every combination of settings that a job allows.
//!
//! A combination is a [`RehearsalPoint`] (what has to be rehearsed), a pipeline (how data is handed over) and a setting of the
//! allocator; the bytes of the last two are computed from the rehearsal of the first.
//!
//! **The order of sacrifice.** A level is one value for each knob of `sacrifice`. Levels are counted like the figures of
//! an odometer: the knob that is named first turns fastest, the one that is named last turns only when all before it
//! have been through all their values, which then start again at the wanted one. With `resolution = [32, 24]`,
//! `model = ["full", "small"]` and `sacrifice = ["resolution", "model"]` the levels are 32 full, 24 full, 32 small,
//! 24 small. A lower level is always better, whatever its speed.

use crate::job::{Choices, Job, Settings, Value, knobs};
use crate::plan::choices::{
    allocators, eval_batches, first_count, micro_batches, pipes, science, values_or, world_size,
};
use crate::plan::pipe::{Pipe, accumulation};
use crate::plan::{PlanLimits, Shape};
use crate::predict::host::StartMethod;

/// Levels of science that are looked at, at most.
const MAX_LEVELS: usize = 4096;

/// Every combination of settings that a job allows.
#[derive(Debug)]
pub(crate) struct Space<'a> {
    pub(crate) job: &'a Job,
    /// Ranks that train together.
    pub(crate) world: u64,
    /// Samples per optimizer step.
    pub(crate) effective: Option<u64>,
    /// Knobs of other science with their values, in the order of sacrifice.
    sacrifice: Vec<(&'a str, Vec<&'a Value>)>,
    /// Knobs of other science that stay at their first value.
    fixed: Vec<(&'a str, &'a Value)>,
    /// Largest first.
    pub(crate) micros: Vec<Option<u64>>,
    pub(crate) compiles: Vec<Option<Value>>,
    pub(crate) checkpoints: Vec<Option<Value>>,
    /// As the user wants them, largest first where they are chosen here.
    pub(crate) evals: Vec<Option<u64>>,
    pub(crate) pipes: Vec<Pipe>,
    pub(crate) allocators: Vec<Option<String>>,
    /// Values that cannot be used, with the reason.
    pub(crate) unused: Vec<(String, String)>,
}

/// What has to be rehearsed: a place in the lists of a [`Space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RehearsalPoint {
    pub(crate) level: usize,
    pub(crate) compile: usize,
    pub(crate) checkpoint: usize,
    pub(crate) eval: usize,
    pub(crate) micro: usize,
}

/// One combination: a spot, and places in the lists of pipelines and allocators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CandidateIndex {
    pub(crate) spot: RehearsalPoint,
    pub(crate) pipe: usize,
    pub(crate) allocator: usize,
}

impl<'a> Space<'a> {
    pub(crate) fn new(job: &'a Job, room: &PlanLimits, shapes: &[Shape]) -> Space<'a> {
        let listed_micro = job.knob(knobs::MICRO_BATCH).and_then(first_count);
        let wanted = job.effective_batch.filter(|batch| *batch > 0);
        let world = world_size(room, shapes, wanted);
        let effective =
            wanted.or_else(|| listed_micro.map(|micro| micro.saturating_mul(world.max(1))));
        let mut unused = Vec::new();
        let micros = micro_batches(job, effective, world, &mut unused);
        let evals = eval_batches(job, effective, world, &mut unused);
        let (sacrifice, fixed) = science(job);
        Space {
            job,
            world,
            effective,
            sacrifice,
            fixed,
            micros,
            evals,
            compiles: values_or(job, knobs::COMPILE, &[false.into(), true.into()]),
            checkpoints: values_or(
                job,
                knobs::ACTIVATION_CHECKPOINTING,
                &[false.into(), true.into()],
            ),
            pipes: pipes(job, room, &mut unused),
            allocators: allocators(job, &mut unused),
            unused,
        }
    }

    /// Whether a knob has no value that can be used.
    pub(crate) fn is_empty(&self) -> bool {
        self.micros.is_empty()
            || self.evals.is_empty()
            || self.pipes.is_empty()
            || self.allocators.is_empty()
    }

    pub(crate) fn n_levels(&self) -> usize {
        self.sacrifice
            .iter()
            .fold(1_usize, |n, (_, values)| n.saturating_mul(values.len()))
            .min(MAX_LEVELS)
    }

    /// What is given up at a level: knob, wanted, taken instead.
    pub(crate) fn given_up(&self, level: usize) -> Vec<(&'a str, &'a Value, &'a Value)> {
        self.digits(level)
            .filter(|(_, _, digit)| *digit > 0)
            .map(|(name, values, digit)| (name, values[0], values[digit]))
            .collect()
    }

    /// Whether no knob of one level is nearer to its wanted value at the other.
    pub(crate) fn only_gives_up(&self, from: usize, to: usize) -> bool {
        self.digits(from)
            .zip(self.digits(to))
            .all(|((_, _, from), (_, _, to))| to >= from)
    }

    fn digits(
        &self,
        level: usize,
    ) -> impl Iterator<Item = (&'a str, &[&'a Value], usize)> + use<'_, 'a> {
        let mut rest = level;
        self.sacrifice.iter().map(move |(name, values)| {
            let digit = rest % values.len();
            rest /= values.len();
            (*name, values.as_slice(), digit)
        })
    }

    /// The settings of a combination, with the accumulation that keeps the effective batch.
    pub(crate) fn settings(&self, place: CandidateIndex) -> Settings {
        let mut settings = Settings::default();
        for (name, value) in &self.fixed {
            settings.set(name, (*value).clone());
        }
        for (name, values, digit) in self.digits(place.spot.level) {
            settings.set(name, values[digit].clone());
        }
        let spot = place.spot;
        let mut put = |knob: &str, value: Option<Value>| {
            if let Some(value) = value {
                settings.set(knob, value);
            }
        };
        put(knobs::COMPILE, self.compiles[spot.compile].clone());
        put(
            knobs::ACTIVATION_CHECKPOINTING,
            self.checkpoints[spot.checkpoint].clone(),
        );
        put(knobs::EVAL_BATCH, self.evals[spot.eval].map(Value::from));
        let micro = self.micros[spot.micro];
        put(knobs::MICRO_BATCH, micro.map(Value::from));
        let accumulation = micro.and_then(|micro| accumulation(self.effective, micro, self.world));
        put(knobs::ACCUMULATION, accumulation.map(Value::from));
        let pipe = &self.pipes[place.pipe];
        put(knobs::WORKERS, pipe.workers.map(Value::from));
        put(knobs::PREFETCH, pipe.prefetch.map(Value::from));
        put(knobs::PIN_MEMORY, pipe.pin_memory.map(Value::from));
        put(knobs::PERSISTENT_WORKERS, pipe.persistent.map(Value::from));
        let start_method = pipe.start_method.map(|method| Value::from(method.name()));
        put(knobs::START_METHOD, start_method);
        let allocator = self.allocators[place.allocator].as_deref();
        put(knobs::ALLOCATOR, allocator.map(Value::from));
        settings
    }

    /// Where settings stand, if they are among the combinations.
    pub(crate) fn place_of(&self, settings: &Settings) -> Option<CandidateIndex> {
        let spot = self.spot_of(settings)?;
        let pipe = self.pipe_of(settings);
        let allocator = settings.text(knobs::ALLOCATOR);
        Some(CandidateIndex {
            spot,
            pipe: self.pipes.iter().position(|known| *known == pipe)?,
            allocator: self
                .allocators
                .iter()
                .position(|known| known.is_none() || known.as_deref() == allocator)?,
        })
    }

    pub(crate) fn spot_of(&self, settings: &Settings) -> Option<RehearsalPoint> {
        let place = |choices: &[Option<Value>], knob: &str| {
            let found = settings.get(knob);
            choices
                .iter()
                .position(|value| value.is_none() || value.as_ref() == found)
        };
        let count = |choices: &[Option<u64>], knob: &str| {
            let found = settings.count(knob);
            choices
                .iter()
                .position(|value| value.is_none() || *value == found)
        };
        for (name, value) in &self.fixed {
            if settings.get(name) != Some(value) {
                return None;
            }
        }
        let level = self.level_of(|name, values| {
            let found = settings.get(name)?;
            values.iter().position(|value| *value == found)
        })?;
        Some(RehearsalPoint {
            level,
            compile: place(&self.compiles, knobs::COMPILE)?,
            checkpoint: place(&self.checkpoints, knobs::ACTIVATION_CHECKPOINTING)?,
            eval: count(&self.evals, knobs::EVAL_BATCH)?,
            micro: count(&self.micros, knobs::MICRO_BATCH)?,
        })
    }

    /// The level of settings; the wanted value where one is not among the values.
    pub(crate) fn level_near(&self, settings: &Settings) -> usize {
        let digit = |name: &str, values: &[&Value]| {
            let found = settings.get(name);
            Some(
                values
                    .iter()
                    .position(|value| Some(*value) == found)
                    .unwrap_or(0),
            )
        };
        self.level_of(digit).unwrap_or(0)
    }

    fn level_of(&self, digit: impl Fn(&str, &[&Value]) -> Option<usize>) -> Option<usize> {
        let mut level = 0_usize;
        for (name, values) in self.sacrifice.iter().rev() {
            let digit = digit(name, values)?;
            level = level.checked_mul(values.len())?.checked_add(digit)?;
        }
        (level < self.n_levels()).then_some(level)
    }

    /// The pipeline of settings, in the one form that it has without workers.
    fn pipe_of(&self, settings: &Settings) -> Pipe {
        let knob = |name: &str| self.job.knob(name).is_some();
        let pipe = Pipe {
            workers: settings
                .count(knobs::WORKERS)
                .filter(|_| knob(knobs::WORKERS)),
            prefetch: settings
                .count(knobs::PREFETCH)
                .filter(|_| knob(knobs::PREFETCH)),
            pin_memory: settings
                .flag(knobs::PIN_MEMORY)
                .filter(|_| knob(knobs::PIN_MEMORY)),
            persistent: settings
                .flag(knobs::PERSISTENT_WORKERS)
                .filter(|_| knob(knobs::PERSISTENT_WORKERS)),
            start_method: settings
                .text(knobs::START_METHOD)
                .filter(|_| knob(knobs::START_METHOD))
                .and_then(StartMethod::from_name),
        };
        if pipe.workers != Some(0) {
            return pipe;
        }
        let form = self.pipes.iter().find(|known| {
            known.workers == Some(0)
                && (pipe.pin_memory.is_none() || known.pin_memory == pipe.pin_memory)
        });
        form.cloned().unwrap_or(pipe)
    }

    /// Saves memory by computing again: never needs more bytes than a value that saves less.
    pub(crate) fn saving(&self, checkpoint: usize) -> usize {
        match self.checkpoints[checkpoint] {
            None | Some(Value::Flag(false)) => 0,
            Some(Value::Flag(true)) => usize::MAX,
            Some(_) => checkpoint + 1,
        }
    }

    /// Whether activations are computed again.
    pub(crate) fn recomputes(&self, checkpoint: usize) -> bool {
        match &self.checkpoints[checkpoint] {
            None | Some(Value::Flag(false)) => false,
            Some(Value::Text(text)) => !matches!(text.as_str(), "" | "none" | "off" | "false"),
            Some(_) => true,
        }
    }

    /// The pipeline to rehearse with: one worker if there may be one, so that its cost is measured.
    pub(crate) fn rehearsed_pipe(&self) -> usize {
        let cost = |pipe: &Pipe| match pipe.workers {
            Some(0) => u64::MAX,
            Some(workers) => workers,
            None => 0,
        };
        let lowest = self.pipes.iter().map(cost).min();
        self.pipes
            .iter()
            .position(|pipe| Some(cost(pipe)) == lowest)
            .unwrap_or(0)
    }
}

/// The settings that the user would have started with: the first value of each knob.
pub fn wanted(job: &Job, room: &PlanLimits) -> Settings {
    let space = Space::new(job, room, &[]);
    if space.is_empty() {
        return Settings::default();
    }
    // Listed micro-batches are sorted here; the user's first comes first.
    let micro = job
        .knob(knobs::MICRO_BATCH)
        .and_then(first_count)
        .and_then(|first| space.micros.iter().position(|micro| *micro == Some(first)));
    let most = |pipe: &Pipe| pipe.workers.unwrap_or(0);
    let listed = job
        .knob(knobs::WORKERS)
        .is_some_and(|knob| matches!(knob.choices, Choices::Listed(_)));
    let workers = if listed {
        space.pipes.first().map(most)
    } else {
        space.pipes.iter().map(most).max()
    };
    let pipe = space
        .pipes
        .iter()
        .position(|pipe| Some(most(pipe)) == workers);
    space.settings(CandidateIndex {
        spot: RehearsalPoint {
            level: 0,
            compile: 0,
            checkpoint: 0,
            eval: 0,
            micro: micro.unwrap_or(0),
        },
        pipe: pipe.unwrap_or(0),
        allocator: 0,
    })
}
