//! The ladder of `brimful run` with a job: plan, start, and come back a rung lower.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use brimful::job::{Job, Settings};
use brimful::plan::{Change, LearntRun, Revision, Room, Shape, revise};
use brimful::record::Outcome;
use brimful_supervise::checkpoints::newest_complete;
use brimful_supervise::{AttemptEnd, Ladder, NextAttempt, StateDir};

/// Steps down by verdict, and remembers.
pub(crate) struct Rungs {
    pub job: Job,
    pub room: Room,
    pub shapes: Vec<Shape>,
    pub learnt: Vec<LearntRun>,
    pub first: Settings,
    pub tried: Vec<Settings>,
    pub most_attempts: usize,
    /// Go on from a checkpoint at the first start too.
    pub resume: bool,
    pub folder: PathBuf,
    pub state: Option<StateDir>,
    pub key: String,
    /// Why it went no further, for the last word.
    pub gave_up: Option<String>,
}

impl Rungs {
    fn attempt(
        &mut self,
        settings: Settings,
        changed: Vec<Change>,
        why: String,
        resume: bool,
    ) -> NextAttempt {
        let checkpoint = if resume {
            newest_complete(&self.folder, &self.job.checkpoints).chosen
        } else {
            None
        };
        let age = checkpoint
            .as_ref()
            .and_then(|found| found.age(SystemTime::now()))
            .and_then(|age| u64::try_from(age.as_millis()).ok());
        let step = checkpoint.as_ref().and_then(|found| found.step);
        let path = checkpoint.map(|checkpoint| checkpoint.path);
        let rendered = self
            .job
            .render(&settings, path.as_deref().and_then(Path::to_str));
        self.tried.push(settings.clone());
        NextAttempt {
            command: rendered.command.into_iter().map(OsString::from).collect(),
            variables: rendered
                .variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            settings: Some(settings),
            changed,
            resumed_from: path,
            checkpoint_step: step,
            checkpoint_age_ms: age,
            effective_batch: self.job.effective_batch,
            why,
        }
    }

    fn remember(&mut self, ended: &AttemptEnd) {
        let Some(settings) = self.tried.last().cloned() else {
            return;
        };
        // A run that was stopped by hand tells nothing of what fits.
        if matches!(
            ended.outcome,
            Outcome::StoppedByUser { .. } | Outcome::NotStarted { .. }
        ) {
            return;
        }
        let learnt = LearntRun {
            at_unix_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0)),
            settings,
            cause: ended
                .verdict
                .cause
                .is_memory()
                .then_some(ended.verdict.cause),
            observed: ended.observed.clone(),
        };
        if let Some(state) = &self.state {
            // What is not remembered makes the next plan no worse than this one.
            let _ = state.remember(&self.key, &learnt);
        }
        self.learnt.push(learnt);
    }
}

impl Ladder for Rungs {
    fn most_attempts(&self) -> Option<u32> {
        u32::try_from(self.most_attempts).ok()
    }

    fn first(&mut self) -> NextAttempt {
        let resume = self.resume;
        self.attempt(self.first.clone(), Vec::new(), String::new(), resume)
    }

    fn next(&mut self, ended: &AttemptEnd) -> Option<NextAttempt> {
        self.remember(ended);
        if matches!(
            ended.outcome,
            Outcome::Finished | Outcome::StoppedByUser { .. } | Outcome::NotStarted { .. }
        ) {
            return None;
        }
        if !ended.verdict.cause.is_memory() {
            return None;
        }
        if self.tried.len() >= self.most_attempts {
            self.gave_up = Some(format!(
                "{} attempts were made, and no more are allowed (--attempts)",
                self.tried.len()
            ));
            return None;
        }
        let revision = revise(
            &self.job,
            &self.room,
            &self.shapes,
            &self.learnt,
            &self.tried,
            &ended.verdict,
            &ended.observed,
        );
        match revision {
            Revision::Next {
                settings,
                changed,
                why,
            } => Some(self.attempt(settings, changed, why, true)),
            Revision::GiveUp { why } => {
                self.gave_up = Some(why);
                None
            }
        }
    }
}
