//! Single steps down from one combination of settings to another.

use std::cmp::Reverse;

use crate::job::{Settings, Value, knobs};
use crate::plan::Change;
use crate::plan::candidates::{CandidateIndex, RehearsalPoint, Space};
use crate::plan::pipe::Pipe;
use crate::predict::host::StartMethod;

/// What differs between two settings, in the order of their names.
pub(crate) fn changes(from: &Settings, to: &Settings) -> Vec<Change> {
    // Where there are no workers it does not matter how they would have been.
    let idle = [
        knobs::PREFETCH,
        knobs::START_METHOD,
        knobs::PERSISTENT_WORKERS,
    ];
    let has_none = |settings: &Settings| settings.count(knobs::WORKERS) == Some(0);
    let matters =
        |knob: &&String| !(idle.contains(&knob.as_str()) && (has_none(from) || has_none(to)));
    let absent = || Value::Text(String::new());
    let mut knobs: Vec<&String> = from.0.keys().chain(to.0.keys()).collect();
    knobs.sort();
    knobs.dedup();
    knobs
        .into_iter()
        .filter(|knob| from.get(knob) != to.get(knob))
        .filter(matters)
        .map(|knob| Change {
            knob: knob.clone(),
            from: from.get(knob).cloned().unwrap_or_else(absent),
            to: to.get(knob).cloned().unwrap_or_else(absent),
        })
        .collect()
}

/// The changes in a sentence: "workers changes from 4 to 2".
pub(crate) fn changes_in_words(changed: &[Change]) -> String {
    let empty = |value: &Value| match value.to_string() {
        text if text.is_empty() => "none".to_owned(),
        text => text,
    };
    let words: Vec<String> = changed
        .iter()
        .map(|change| {
            let (from, to) = (empty(&change.from), empty(&change.to));
            format!("{} changes from {from} to {to}", change.knob)
        })
        .collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

impl Space<'_> {
    /// The place with another pipeline, if the job allows it.
    pub(crate) fn with_pipe(
        &self,
        place: CandidateIndex,
        change: impl Fn(&mut Pipe),
    ) -> Option<CandidateIndex> {
        let mut wanted = self.pipes[place.pipe].clone();
        change(&mut wanted);
        let pipe = self.pipes.iter().position(|pipe| {
            if wanted.workers == Some(0) {
                // The other knobs have one value there.
                pipe.workers == Some(0) && pipe.pin_memory == wanted.pin_memory
            } else {
                *pipe == wanted
            }
        })?;
        Some(CandidateIndex { pipe, ..place })
    }

    /// Counts of workers below that of a place, largest first.
    pub(crate) fn fewer_workers(&self, place: CandidateIndex) -> Vec<u64> {
        let now = self.pipes[place.pipe].workers;
        let all = self.pipes.iter().map(|pipe| pipe.workers);
        descending(all.filter(|workers| *workers < now).flatten())
    }

    /// Depths of prefetch below that of a place, largest first; none without workers.
    pub(crate) fn less_prefetch(&self, place: CandidateIndex) -> Vec<u64> {
        let pipe = &self.pipes[place.pipe];
        if pipe.workers == Some(0) {
            return Vec::new();
        }
        let all = self.pipes.iter().map(|pipe| pipe.prefetch);
        descending(all.filter(|prefetch| *prefetch < pipe.prefetch).flatten())
    }

    /// Evaluation batches below that of a place, largest first.
    pub(crate) fn smaller_evals(&self, place: CandidateIndex) -> Vec<(u64, CandidateIndex)> {
        let now = self.evals[place.spot.eval];
        let smaller = self
            .evals
            .iter()
            .enumerate()
            .filter(|(_, eval)| **eval < now);
        let mut smaller: Vec<(u64, CandidateIndex)> = smaller
            .filter_map(|(eval, size)| {
                let spot = RehearsalPoint { eval, ..place.spot };
                Some(((*size)?, CandidateIndex { spot, ..place }))
            })
            .collect();
        smaller.sort_by_key(|(size, _)| Reverse(*size));
        smaller
    }

    /// Micro-batches below that of a place, largest first.
    pub(crate) fn smaller_micros(&self, place: CandidateIndex) -> Vec<(u64, CandidateIndex)> {
        (place.spot.micro + 1..self.micros.len())
            .filter_map(|micro| {
                let spot = RehearsalPoint {
                    micro,
                    ..place.spot
                };
                Some((self.micros[micro]?, CandidateIndex { spot, ..place }))
            })
            .collect()
    }

    /// Values of checkpointing that save more than that of a place, least saving first.
    pub(crate) fn more_saving(&self, place: CandidateIndex) -> Vec<CandidateIndex> {
        let now = self.saving(place.spot.checkpoint);
        let mut more: Vec<usize> = (0..self.checkpoints.len())
            .filter(|checkpoint| self.saving(*checkpoint) > now)
            .collect();
        more.sort_by_key(|checkpoint| self.saving(*checkpoint));
        more.into_iter()
            .map(|checkpoint| CandidateIndex {
                spot: RehearsalPoint {
                    checkpoint,
                    ..place.spot
                },
                ..place
            })
            .collect()
    }

    /// The place at other levels that give up more, in the order of sacrifice.
    pub(crate) fn more_sacrifice(
        &self,
        place: CandidateIndex,
    ) -> impl Iterator<Item = CandidateIndex> + use<> {
        (place.spot.level + 1..self.n_levels()).map(move |level| CandidateIndex {
            spot: RehearsalPoint {
                level,
                ..place.spot
            },
            ..place
        })
    }

    /// The settings of the allocator whose segments grow.
    pub(crate) fn with_expandable_segments(&self, place: CandidateIndex) -> Option<CandidateIndex> {
        let expandable = |allocator: &Option<String>| {
            allocator.as_deref().is_some_and(|conf| {
                let conf = conf.replace(' ', "").to_ascii_lowercase();
                conf.contains("expandable_segments:true")
            })
        };
        if expandable(&self.allocators[place.allocator]) {
            return None;
        }
        let allocator = self.allocators.iter().position(expandable)?;
        Some(CandidateIndex { allocator, ..place })
    }

    /// Single changes of how data is handed over that may need fewer bytes, without touching the number of workers.
    pub(crate) fn lighter_pipes(&self, place: CandidateIndex) -> Vec<CandidateIndex> {
        let pipe = &self.pipes[place.pipe];
        let working = pipe.workers != Some(0);
        let mut lighter = Vec::new();
        let mut add =
            |changed: Option<CandidateIndex>| lighter.extend(changed.filter(|p| *p != place));
        if working && pipe.start_method.is_some_and(|m| m != StartMethod::Fork) {
            add(self.with_pipe(place, |pipe| pipe.start_method = Some(StartMethod::Fork)));
        }
        for prefetch in self.less_prefetch(place) {
            add(self.with_pipe(place, |pipe| pipe.prefetch = Some(prefetch)));
        }
        if pipe.pin_memory == Some(true) {
            add(self.with_pipe(place, |pipe| pipe.pin_memory = Some(false)));
        }
        if working && pipe.persistent == Some(true) {
            add(self.with_pipe(place, |pipe| pipe.persistent = Some(false)));
        }
        lighter
    }

    /// The place of settings, or of the nearest that the job allows.
    pub(crate) fn place_near(&self, settings: &Settings) -> CandidateIndex {
        use crate::job::knobs::{
            ACTIVATION_CHECKPOINTING, ALLOCATOR, COMPILE, EVAL_BATCH, MICRO_BATCH, WORKERS,
        };
        if let Some(place) = self.place_of(settings) {
            return place;
        }
        let index = |choices: &[Option<Value>], knob: &str| {
            let found = settings.get(knob);
            choices.iter().position(|value| value.as_ref() == found)
        };
        let below = |choices: &[Option<u64>], knob: &str| {
            let found = settings.count(knob);
            let at_most = (0..choices.len()).filter(|index| choices[*index] <= found);
            at_most.max_by_key(|index| choices[*index])
        };
        let workers: Vec<Option<u64>> = self.pipes.iter().map(|pipe| pipe.workers).collect();
        let most = below(&workers, WORKERS).map(|index| workers[index]);
        let allocator = settings.text(ALLOCATOR);
        CandidateIndex {
            spot: RehearsalPoint {
                level: self.level_near(settings),
                compile: index(&self.compiles, COMPILE).unwrap_or(0),
                checkpoint: index(&self.checkpoints, ACTIVATION_CHECKPOINTING).unwrap_or(0),
                eval: below(&self.evals, EVAL_BATCH).unwrap_or(0),
                micro: below(&self.micros, MICRO_BATCH).unwrap_or(0),
            },
            pipe: most
                .and_then(|most| workers.iter().position(|workers| *workers == most))
                .unwrap_or(0),
            allocator: self
                .allocators
                .iter()
                .position(|known| known.as_deref() == allocator)
                .unwrap_or(0),
        }
    }
}

/// From `now`, the next at half of it or below, or else the next smaller one; then on from there.
pub(crate) fn halved<T: Copy>(now: Option<u64>, smaller: &[(u64, T)]) -> Option<T> {
    let half = now.unwrap_or(0) / 2;
    let found = smaller.iter().find(|(size, _)| *size <= half);
    found.or(smaller.first()).map(|(_, found)| *found)
}

fn descending(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.dedup();
    values
}
