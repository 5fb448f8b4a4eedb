//! The attempts of a job: each one after a failure uses settings that need less memory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brimful::job::{Job, Rendered, Settings};
use brimful::nodes::NodeEnd;
use brimful::plan::{
    Change, LearntRun, MeasuredOn, PlanBrim, PlanLimits, Revision, Rung, Shape, revise,
};
use brimful::record::Outcome;
use brimful_rehearse::ConfigFiles;
use brimful_report::text;
use brimful_supervise::checkpoints::{Checkpoint, Checkpoints, Refusal, Selector};
use brimful_supervise::{AttemptEnd, Ladder, NextAttempt, StateDir, job_file_stem};

use crate::error::{NoCommand, WorkflowError};
use crate::nodes::{AttemptOnNodes, NodesLadder};

/// Chooses the next attempt from the verdict on the last one, and stores what each one measured.
#[derive(Debug)]
pub struct JobLadder {
    pub(crate) job: Job,
    pub(crate) room: PlanLimits,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) learnt: Vec<LearntRun>,
    pub(crate) first: Settings,
    /// What the plan predicts for them.
    pub(crate) first_predicted: Vec<PlanBrim>,
    /// The rungs below the first settings, as planned.
    pub(crate) rungs: Vec<Rung>,
    pub(crate) tried: Vec<Settings>,
    pub(crate) max_attempts: usize,
    /// Knows which checkpoints were there before the run: another run's, unless the user says to resume from them.
    pub(crate) checkpoints: Selector,
    /// An attempt of this run has resumed from a checkpoint.
    pub(crate) has_resumed: bool,
    pub(crate) state: Option<StateDir>,
    pub(crate) key: String,
    /// If the job has config files: copies of them with the values of an attempt.
    pub(crate) config: Option<ConfigFiles>,
    /// The command of the first attempt, from [`JobLadder::prepare`] until it starts.
    pub(crate) prepared: Option<Vec<String>>,
    /// If several nodes train together: what they agree on.
    pub(crate) nodes: Option<NodesLadder>,
    /// Why there is no further attempt.
    pub(crate) gave_up: Option<String>,
}

impl JobLadder {
    /// Why there was no further attempt after the last one, if it failed.
    pub fn gave_up(&self) -> Option<&str> {
        self.gave_up.as_deref()
    }

    /// A digest of the job, the same in all of its runs and on all of its nodes.
    pub fn job_digest(&self) -> String {
        match &self.nodes {
            Some(nodes) => nodes.key().to_owned(),
            None => job_file_stem(&self.key),
        }
    }

    /// Prepares the first attempt, and returns its command as it is recorded.
    pub fn prepare(&mut self) -> Result<Vec<OsString>, WorkflowError> {
        Ok(self.prepare_command()?)
    }

    fn prepare_command(&mut self) -> Result<Vec<OsString>, NoCommand> {
        let chosen = self.checkpoints.first().chosen.as_ref();
        let path = chosen.and_then(|chosen| chosen.path.to_str());
        let command = self.command(&self.job.render(&self.first, path))?;
        self.prepared = Some(command.clone());
        Ok(command.into_iter().map(OsString::from).collect())
    }

    /// The command of an attempt, with copies of its config files.
    fn command(&mut self, rendered: &Rendered) -> Result<Vec<String>, NoCommand> {
        if let Some(nodes) = &mut self.nodes {
            // Its ranks write the copies, once they know the settings.
            return Ok(nodes.command(&self.job, &rendered.command)?);
        }
        match &mut self.config {
            Some(files) => Ok(files.write(rendered)?),
            None => Ok(rendered.command.clone()),
        }
    }

    fn attempt(
        &mut self,
        settings: Settings,
        changed: Vec<Change>,
        why: String,
        found: Checkpoints,
    ) -> Result<NextAttempt, NoCommand> {
        let refused = sentences(&found.refused);
        let age = found.chosen.as_ref().and_then(age_ms);
        let step = found.chosen.as_ref().and_then(|chosen| chosen.step);
        let path = found.chosen.map(|chosen| chosen.path);
        self.has_resumed |= path.is_some();
        let rendered = self
            .job
            .render(&settings, path.as_deref().and_then(Path::to_str));
        let command = match self.prepared.take() {
            Some(command) => command,
            None => self.command(&rendered)?,
        };
        self.tried.push(settings.clone());
        let next_rung = self.next_rung(&settings);
        let predicted = self.predicted(&settings);
        Ok(NextAttempt {
            command: command.into_iter().map(OsString::from).collect(),
            variables: rendered
                .variables
                .into_iter()
                // Ranks set those of the settings that they agree on.
                .filter(|_| self.nodes.is_none())
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            settings: Some(settings),
            predicted,
            changed,
            next_rung,
            resumed_from: path,
            checkpoints: self.job.checkpoints.clone(),
            checkpoint_step: step,
            checkpoint_age_ms: age,
            refused,
            effective_batch: self.job.effective_batch,
            why,
        })
    }

    /// What the plan predicts for these settings; nothing if they are not of the plan.
    fn predicted(&self, settings: &Settings) -> Vec<PlanBrim> {
        if *settings == self.first {
            return self.first_predicted.clone();
        }
        let rung = self.rungs.iter().find(|rung| rung.settings == *settings);
        rung.map_or_else(Vec::new, |rung| rung.brims.clone())
    }

    /// What the rung below these settings changes; nothing if the plan has none, or if the settings are not of the plan.
    fn next_rung(&self, settings: &Settings) -> Vec<Change> {
        let below = if *settings == self.first {
            self.rungs.first()
        } else {
            let at = self
                .rungs
                .iter()
                .position(|rung| rung.settings == *settings);
            at.and_then(|at| self.rungs.get(at + 1))
        };
        below.map_or_else(Vec::new, |rung| rung.changed.clone())
    }

    /// Why the next attempt must not start from the beginning: it would write over what this run has done.
    fn starting_over_loses(&self, found: &Checkpoints) -> Option<String> {
        let is_lifted = |(_, why): &(PathBuf, Refusal)| why.is_lifted_by_force();
        let any_lifted = found.refused.iter().any(is_lifted);
        if found.chosen.is_some() || !(self.has_resumed || any_lifted) {
            return None;
        }
        let mut why = vec!["the next attempt would start from the beginning".to_owned()];
        why.extend(sentences(&found.refused));
        if any_lifted {
            why.push("run `brimful run --resume --force` to accept it".into());
        }
        Some(why.join("; "))
    }

    /// The next attempt of a job on several nodes, which all of them make together.
    fn next_on_nodes(
        &mut self,
        ended: &AttemptEnd,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> Option<NextAttempt> {
        let nodes = self.nodes.as_mut()?;
        let after = nodes.after(ended, pause);
        if let Some(run) = &nodes.agreed
            && nodes.has_begun
        {
            self.tried.clone_from(&run.tried);
            self.remember(ended);
        }
        let nodes = self.nodes.as_mut()?;
        let (changed, why) = match after {
            AttemptOnNodes::End(why) => {
                self.gave_up = why;
                return None;
            }
            AttemptOnNodes::Again(why) => (Vec::new(), why),
            AttemptOnNodes::OutOfMemory(run) => {
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
                    } => {
                        nodes.report(NodeEnd::Memory, ended);
                        nodes.propose(&run, settings);
                        (changed, why)
                    }
                    Revision::GiveUp { why } => {
                        // Before the report: it would make the others start again.
                        let _ = nodes.end(&ended.verdict.summary);
                        nodes.report(NodeEnd::Memory, ended);
                        self.gave_up = Some(why);
                        return None;
                    }
                }
            }
        };
        let settings = nodes.proposal.settings.clone();
        let found = nodes.checkpoints(&self.job.checkpoints);
        let attempt = self.attempt(settings, changed, why, found);
        attempt
            .map_err(|error| self.gave_up = Some(error.to_string()))
            .ok()
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
                .is_learned_from()
                .then_some(ended.verdict.cause),
            observed: ended.observed.clone(),
            measured_on: Some(MeasuredOn::of(&self.room, &self.shapes)),
        };
        if let Some(state) = &self.state {
            // What is not remembered makes the next plan no worse than this one.
            let _ = state.remember(&self.key, &learnt);
        }
        self.learnt.push(learnt);
    }
}

/// The time since a checkpoint was written.
pub fn age_ms(checkpoint: &Checkpoint) -> Option<u64> {
    let age = checkpoint.age(SystemTime::now())?;
    u64::try_from(age.as_millis()).ok()
}

/// What is not resumed from, for the terminal and the record.
fn sentences(refused: &[(PathBuf, Refusal)]) -> Vec<String> {
    const MAX_SHOWN: usize = 8;
    let mut lines: Vec<String> = refused
        .iter()
        .filter(|(_, why)| why.may_hold_progress())
        .map(|(path, why)| text::ladder::refused(&path.to_string_lossy(), &why.to_string()))
        .collect();
    let n_more = lines.len().saturating_sub(MAX_SHOWN);
    lines.truncate(MAX_SHOWN);
    if n_more > 0 {
        lines.push(format!("{n_more} more checkpoints are not used"));
    }
    lines
}

impl Ladder for JobLadder {
    fn max_attempts(&self) -> Option<u32> {
        // Starts of torchrun that do not find the other nodes are not counted.
        if self.nodes.is_some() {
            return None;
        }
        u32::try_from(self.max_attempts).ok()
    }

    fn first(&mut self) -> NextAttempt {
        let found = self.checkpoints.first().clone();
        // Its copies of config files are written by `prepare`; without them there is nothing to start.
        self.attempt(self.first.clone(), Vec::new(), String::new(), found)
            .unwrap_or_default()
    }

    fn next(
        &mut self,
        ended: &AttemptEnd,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> Option<NextAttempt> {
        if self.nodes.is_some() {
            return self.next_on_nodes(ended, pause);
        }
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
        if self.tried.len() >= self.max_attempts {
            self.gave_up = Some(format!(
                "the maximum of {} attempts is reached (--attempts)",
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
            } => {
                let found = self.checkpoints.later();
                if let Some(why) = self.starting_over_loses(&found) {
                    self.gave_up = Some(why);
                    return None;
                }
                match self.attempt(settings, changed, why, found) {
                    Ok(attempt) => Some(attempt),
                    Err(error) => {
                        self.gave_up = Some(error.to_string());
                        None
                    }
                }
            }
            Revision::GiveUp { why } => {
                self.gave_up = Some(why);
                None
            }
        }
    }

    fn stopped(&mut self) {
        if let Some(nodes) = &self.nodes {
            let _ = nodes.end("it was stopped");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brimful_supervise::checkpoints::SelectorOptions;

    use super::*;

    fn ladder(directory: &Path, resume: bool) -> JobLadder {
        let file = brimful::job::read(
            "[job]\ncommand = [\"train\"]\ncheckpoints = \"*.pt\"\nresume = [\"--resume\", \"{checkpoint}\"]\n",
        )
        .expect("a job");
        let job = file.job(None, &[]).expect("a job");
        let options = SelectorOptions {
            resume,
            force: false,
        };
        let mut checkpoints = Selector::new(directory, &job.checkpoints, options);
        checkpoints.rehearsals_ended();
        JobLadder {
            job,
            room: PlanLimits::default(),
            shapes: Vec::new(),
            learnt: Vec::new(),
            first: Settings::default(),
            first_predicted: Vec::new(),
            rungs: Vec::new(),
            tried: Vec::new(),
            max_attempts: 3,
            checkpoints,
            has_resumed: false,
            state: None,
            key: String::new(),
            config: None,
            prepared: None,
            nodes: None,
            gave_up: None,
        }
    }

    fn write(path: &Path, text: &str, age: Duration) {
        fs::write(path, text).expect("written");
        let file = fs::File::options().append(true).open(path).expect("there");
        file.set_modified(SystemTime::now() - age).expect("set");
    }

    fn later(ladder: &mut JobLadder) -> NextAttempt {
        let found = ladder.checkpoints.later();
        ladder
            .attempt(Settings::default(), Vec::new(), String::new(), found)
            .expect("no config files")
    }

    #[test]
    fn a_checkpoint_of_an_earlier_training_is_not_gone_on_from() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("last.pt");
        write(&path, "old", Duration::from_mins(1));
        let mut ladder = ladder(directory.path(), false);
        assert_eq!(ladder.first().resumed_from, None);
        let next = later(&mut ladder);
        assert_eq!(next.resumed_from, None);
        assert_eq!(next.command, ["train"]);
        // This run writes its own over it.
        write(&path, "new", Duration::from_secs(5));
        let next = later(&mut ladder);
        assert_eq!(next.resumed_from.as_deref(), Some(path.as_path()));
        assert_eq!(next.command.len(), 3);
    }

    /// Two steps inside of pickles, as `pickle.dump({"step": 9}, file)` writes them.
    const STEP_9: &str = "}X\x04\0\0\0stepK\x09s.";
    const STEP_2: &str = "}X\x04\0\0\0stepK\x02s.";

    fn write_step(path: &Path, pickle: &str, age: Duration) {
        fs::write(path, [b"\x80\x02", pickle.as_bytes()].concat()).expect("written");
        let file = fs::File::options().append(true).open(path).expect("there");
        file.set_modified(SystemTime::now() - age).expect("set");
    }

    #[test]
    fn a_higher_step_of_an_earlier_training_does_not_count_under_any_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        write_step(&at("last.pt"), STEP_9, Duration::from_mins(9));
        write_step(&at("other.pt"), STEP_9, Duration::from_mins(8));
        let mut ladder = ladder(directory.path(), false);
        assert_eq!(ladder.first().resumed_from, None);
        // The new training keeps the file that it finds under another name.
        fs::rename(at("last.pt"), at("previous.pt")).expect("renamed");
        write_step(&at("last.pt"), STEP_2, Duration::from_secs(5));
        let next = later(&mut ladder);
        assert_eq!(next.resumed_from, Some(at("last.pt")));
        assert_eq!(next.checkpoint_step, Some(2));
    }

    #[test]
    fn an_attempt_names_the_rung_below_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut ladder = ladder(directory.path(), false);
        let workers = |n: u64| Settings::default().with("workers", n);
        let rung = |from: u64, to: u64| Rung {
            settings: workers(to),
            changed: vec![Change {
                knob: "workers".into(),
                from: from.into(),
                to: to.into(),
            }],
            brims: Vec::new(),
            throughput: None,
        };
        ladder.first = workers(4);
        ladder.rungs = vec![rung(4, 2), rung(2, 0)];
        assert_eq!(ladder.first().next_rung, ladder.rungs[0].changed);
        assert_eq!(ladder.next_rung(&workers(2)), ladder.rungs[1].changed);
        assert!(ladder.next_rung(&workers(0)).is_empty());
        assert!(ladder.next_rung(&workers(1)).is_empty());
    }

    #[test]
    fn a_run_that_resumed_does_not_start_over() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("last.pt");
        write_step(&path, STEP_9, Duration::from_mins(9));
        let mut ladder = ladder(directory.path(), true);
        let first = ladder.first();
        assert_eq!(first.resumed_from.as_deref(), Some(path.as_path()));
        assert_eq!(first.checkpoint_step, Some(9));
        assert_eq!(
            ladder.starting_over_loses(&ladder.checkpoints.later()),
            None
        );
        // The last save was cut short.
        fs::write(&path, b"\x80\x02}").expect("written");
        let why = ladder.starting_over_loses(&ladder.checkpoints.later());
        let why = why.expect("nothing to resume from");
        assert!(
            why.contains("last.pt` is not used: it is cut short"),
            "{why}"
        );
        assert!(!why.contains("--force"), "{why}");
    }

    #[test]
    fn what_a_new_run_wrote_and_cannot_use_ends_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("last.pt");
        let ladder = ladder(directory.path(), false);
        assert_eq!(
            ladder.starting_over_loses(&ladder.checkpoints.later()),
            None
        );
        write_step(&path, STEP_2, Duration::ZERO);
        let file = fs::File::options().append(true).open(&path).expect("there");
        file.set_modified(SystemTime::now() + Duration::from_hours(3))
            .expect("set");
        let why = ladder.starting_over_loses(&ladder.checkpoints.later());
        let why = why.expect("a checkpoint from the future");
        assert!(why.contains("in the future"), "{why}");
        assert!(why.contains("--resume --force"), "{why}");
    }
}
