//! A job file: the job and its modes, each thing with its line.

use std::collections::BTreeSet;

use crate::job::bounds::MAX_KNOBS;
use crate::job::error::{JobError, Mistake};
use crate::job::overrides::Override;
use crate::job::rules::{self, CHECKPOINT, EFFECTIVE_BATCH_PLACE};
use crate::job::value::Value;
use crate::job::{Choices, ConfigOverrides, Job, Knob, knobs};
use crate::suggest::closest_owned;

/// What a `brimful.toml` says. [`JobFile::job`] makes a [`Job`] of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFile {
    pub(super) command: Placed<Vec<String>>,
    pub(super) checkpoints: Vec<String>,
    pub(super) resume: Placed<Vec<String>>,
    pub(super) effective_batch: Option<Placed<u64>>,
    pub(super) knobs: Vec<Placed<Knob>>,
    pub(super) sacrifice: Placed<Vec<String>>,
    pub(super) configs: Vec<Placed<ConfigOverrides>>,
    pub(super) modes: Vec<Mode>,
}

/// Something and the line it stands on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Placed<T> {
    pub(super) line: usize,
    pub(super) what: T,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mode {
    pub(super) name: String,
    pub(super) extra: Placed<Vec<String>>,
    pub(super) effective_batch: Option<Placed<u64>>,
    pub(super) sacrifice: Option<Placed<Vec<String>>>,
    pub(super) assigned: Vec<Placed<Assigned>>,
}

/// A key of a mode.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Assigned {
    Knob(Knob),
    Value(String, Value),
}

impl Assigned {
    fn name(&self) -> &str {
        match self {
            Assigned::Knob(knob) => &knob.name,
            Assigned::Value(name, _) => name,
        }
    }
}

impl JobFile {
    /// The names of its modes, in the order of the file.
    pub fn modes(&self) -> impl Iterator<Item = &str> {
        self.modes.iter().map(|mode| mode.name.as_str())
    }

    /// The job in a mode, with what was typed in place of what is written. A later override wins.
    pub fn job(&self, mode: Option<&str>, overrides: &[Override]) -> Result<Job, JobError> {
        let mode = mode.map(|name| self.mode(name)).transpose()?;
        let mut job = Job {
            command: self.command.what.clone(),
            checkpoints: self.checkpoints.clone(),
            resume: self.resume.what.clone(),
            effective_batch: self.effective_batch.as_ref().map(|batch| batch.what),
            knobs: self.knobs.iter().map(|knob| knob.what.clone()).collect(),
            sacrifice: self.sacrifice.what.clone(),
            config: self.configs.iter().map(|file| file.what.clone()).collect(),
            ..Job::default()
        };
        if let Some(mode) = mode {
            mode.apply(&mut job);
        }
        for given in overrides {
            self.override_with(given, &mut job)
                .map_err(JobError::nowhere)?;
        }
        self.check(&job, mode).map_err(|error| {
            // The file was sound by itself when it was read: no line of it is to blame.
            let line = error.line.filter(|_| overrides.is_empty());
            JobError { line, ..error }
        })?;
        Ok(job)
    }

    /// Whether a name is a knob here: listed, or one that brimful knows.
    pub(super) fn has_knob(&self, name: &str) -> bool {
        knobs::SAME_SCIENCE.contains(&name) || self.knobs.iter().any(|knob| knob.what.name == name)
    }

    fn mode(&self, name: &str) -> Result<&Mode, JobError> {
        self.modes
            .iter()
            .find(|mode| mode.name == name)
            .ok_or_else(|| {
                JobError::nowhere(Mistake::UnknownMode {
                    found: name.to_owned(),
                    close: closest_owned(name, self.modes()),
                    known: self.modes().map(str::to_owned).collect(),
                })
            })
    }

    /// Places that a command may have: knobs, what modes set, and what is derived.
    fn places<'a>(&'a self, job: &'a Job) -> BTreeSet<&'a str> {
        let own = self.modes.iter().flat_map(|mode| &mode.assigned);
        own.map(|assigned| assigned.what.name())
            .chain(job.knobs.iter().map(|knob| knob.name.as_str()))
            .chain(job.values.keys().map(String::as_str))
            .chain([knobs::ACCUMULATION, EFFECTIVE_BATCH_PLACE])
            .collect()
    }

    fn override_with(&self, given: &Override, job: &mut Job) -> Result<(), Mistake> {
        let key = given.key.as_str();
        match key {
            EFFECTIVE_BATCH_PLACE => {
                let count = match given.values.as_slice() {
                    [Value::Whole(number)] => rules::effective_batch(*number),
                    _ => None,
                };
                job.effective_batch = Some(count.ok_or_else(|| Mistake::WrongType {
                    key: key.to_owned(),
                    expected: rules::EFFECTIVE_BATCH,
                    found: given.typed(),
                })?);
            }
            "sacrifice" => {
                job.sacrifice = given.values.iter().map(ToString::to_string).collect();
            }
            _ if self.has_knob(key) || job.knob(key).is_some() => {
                let choices = match given.values.as_slice() {
                    [Value::Text(text)] if text == "auto" => Choices::Auto,
                    values => Choices::Listed(values.to_vec()),
                };
                set(
                    job,
                    Knob {
                        name: key.to_owned(),
                        choices: rules::knob(key, choices)?,
                    },
                );
                if job.knobs.len() > MAX_KNOBS {
                    return Err(Mistake::TooMany {
                        what: "knobs",
                        limit: MAX_KNOBS,
                    });
                }
            }
            _ => {
                let known = self.places(job);
                if !known.contains(key) {
                    return Err(Mistake::Unknown {
                        what: "knob",
                        found: key.to_owned(),
                        table: "the job".into(),
                        close: closest_owned(key, known.iter().copied()),
                        known: known.into_iter().map(str::to_owned).collect(),
                    });
                }
                let [value] = given.values.as_slice() else {
                    return Err(Mistake::WrongType {
                        key: key.to_owned(),
                        expected: "a single value because it is not a knob",
                        found: given.typed(),
                    });
                };
                job.values.insert(key.to_owned(), value.clone());
            }
        }
        Ok(())
    }

    fn check(&self, job: &Job, mode: Option<&Mode>) -> Result<(), JobError> {
        let at = |line: usize| move |mistake| JobError::at(line, mistake);
        let mut known = self.places(job);
        let mut placed = rules::places(&job.command, &known).map_err(at(self.command.line))?;
        let extra_line = mode.map_or(0, |mode| mode.extra.line);
        placed.extend(rules::places(&job.extra, &known).map_err(at(extra_line))?);
        known.insert(CHECKPOINT);
        rules::places(&job.resume, &known).map_err(at(self.resume.line))?;
        for file in &self.configs {
            placed.extend(rules::config(job, &file.what, &known).map_err(at(file.line))?);
        }
        let line = self.line_of(knobs::MICRO_BATCH);
        rules::batches(job, &placed).map_err(|mistake| JobError::new(line, mistake))?;
        let line = mode
            .and_then(|mode| mode.sacrifice.as_ref())
            .unwrap_or(&self.sacrifice)
            .line;
        rules::sacrifice(job).map_err(|mistake| JobError::new((line > 0).then_some(line), mistake))
    }

    fn line_of(&self, knob: &str) -> Option<usize> {
        self.knobs
            .iter()
            .find(|placed| placed.what.name == knob)
            .map(|placed| placed.line)
    }
}

impl Mode {
    fn apply(&self, job: &mut Job) {
        job.extra.clone_from(&self.extra.what);
        if let Some(batch) = &self.effective_batch {
            job.effective_batch = Some(batch.what);
        }
        if let Some(sacrifice) = &self.sacrifice {
            job.sacrifice.clone_from(&sacrifice.what);
        }
        for assigned in &self.assigned {
            match &assigned.what {
                Assigned::Knob(knob) => set(job, knob.clone()),
                Assigned::Value(name, value) => {
                    job.values.insert(name.clone(), value.clone());
                }
            }
        }
    }
}

/// Puts a knob in the place of the one of its name, or at the end.
fn set(job: &mut Job, knob: Knob) {
    match job.knobs.iter_mut().find(|own| own.name == knob.name) {
        Some(own) => *own = knob,
        None => job.knobs.push(knob),
    }
}
