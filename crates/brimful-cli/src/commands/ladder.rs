//! The ladder of `brimful run` with a job: plan, start, and come back a rung lower.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use brimful::job::{Job, Settings};
use brimful::plan::{Change, LearntRun, Revision, Room, Shape, revise};
use brimful::record::Outcome;
use brimful_supervise::checkpoints::{Checkpoint, newest_complete};
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
    /// What was there before the run: another training's, unless the user says to go on from it.
    pub stale: Option<Checkpoint>,
    pub folder: PathBuf,
    pub state: Option<StateDir>,
    pub key: String,
    /// Why it went no further, for the last word.
    pub gave_up: Option<String>,
}

impl Rungs {
    /// The newest complete checkpoint, written by this run or not.
    pub(crate) fn newest(&self) -> Option<Checkpoint> {
        let chosen = newest_complete(&self.folder, &self.job.checkpoints).chosen;
        // A command line of ours is text.
        chosen.filter(|found| found.path.to_str().is_some())
    }

    /// The command of the first attempt, as it is recorded.
    pub(crate) fn first_command(&self) -> Vec<OsString> {
        let rendered = self.job.render(&self.first, None);
        rendered.command.into_iter().map(OsString::from).collect()
    }

    fn attempt(
        &mut self,
        settings: Settings,
        changed: Vec<Change>,
        why: String,
        resume: bool,
    ) -> NextAttempt {
        let checkpoint = self
            .newest()
            .filter(|found| resume && self.stale.as_ref() != Some(found));
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    fn rungs(folder: &Path) -> Rungs {
        let file = brimful::job::read(
            "[job]\ncommand = [\"train\"]\ncheckpoints = \"*.pt\"\nresume = [\"--resume\", \"{checkpoint}\"]\n",
        )
        .expect("a job");
        Rungs {
            job: file.job(None, &[]).expect("a job"),
            room: Room::default(),
            shapes: Vec::new(),
            learnt: Vec::new(),
            first: Settings::default(),
            tried: Vec::new(),
            most_attempts: 3,
            resume: false,
            stale: None,
            folder: folder.to_owned(),
            state: None,
            key: String::new(),
            gave_up: None,
        }
    }

    fn write(path: &Path, text: &str, age: Duration) {
        fs::write(path, text).expect("written");
        let file = fs::File::options().append(true).open(path).expect("there");
        file.set_modified(SystemTime::now() - age).expect("set");
    }

    #[test]
    fn a_checkpoint_of_an_earlier_training_is_not_gone_on_from() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last.pt");
        write(&path, "old", Duration::from_mins(1));
        let mut rungs = rungs(folder.path());
        rungs.stale = rungs.newest();
        assert!(rungs.stale.is_some());
        let next = rungs.attempt(Settings::default(), Vec::new(), String::new(), true);
        assert_eq!(next.resumed_from, None);
        assert_eq!(next.command, ["train"]);
        // This run writes its own over it.
        write(&path, "new", Duration::from_secs(5));
        let next = rungs.attempt(Settings::default(), Vec::new(), String::new(), true);
        assert_eq!(next.resumed_from.as_deref(), Some(path.as_path()));
        assert_eq!(next.command.len(), 3);
    }
}
