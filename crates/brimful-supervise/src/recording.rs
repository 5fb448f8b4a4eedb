//! The record of one attempt while it runs.

use std::path::Path;
use std::time::{Duration, Instant};

use brimful::record::{AttemptLine, GapLine, Line, OutputLine, Record, merged};
use brimful::watch::Sample;

use crate::exit_status;
use crate::recorder::Recorder;
use crate::state::StoredRun;
use crate::streams::DirectFile;
use crate::tail;

/// Samples go to the record at most this often, the highest figures of those between merged into them.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// Writes what happens in one attempt to the run record.
pub(crate) struct Recording<'a> {
    recorder: &'a mut Recorder,
    stored: Option<&'a StoredRun>,
    /// The attempt's first line on record.
    pub(crate) attempt: AttemptLine,
    /// Files to which the training writes by itself.
    direct: Vec<DirectFile>,
    /// Samples not yet in the record, as one.
    pending: Option<Sample>,
    sampled_at: Option<Instant>,
}

impl<'a> Recording<'a> {
    pub(crate) fn new(
        recorder: &'a mut Recorder,
        stored: Option<&'a StoredRun>,
        attempt: AttemptLine,
        direct: Vec<DirectFile>,
    ) -> Recording<'a> {
        Recording {
            recorder,
            stored,
            attempt,
            direct,
            pending: None,
            sampled_at: None,
        }
    }

    pub(crate) fn write(&mut self, line: &Line) {
        self.recorder.write(line);
    }

    pub(crate) fn gap(&mut self, at_ms: u64, message: &str) {
        self.recorder.write(&Line::Gap(GapLine {
            at_ms,
            message: message.to_owned(),
        }));
    }

    /// Records a sample, at once or together with those that follow.
    pub(crate) fn sample(&mut self, sample: &Sample, at_once: bool) {
        let pending = match self.pending.take() {
            Some(pending) => merged(&pending, sample),
            None => sample.clone(),
        };
        let is_due = self
            .sampled_at
            .is_none_or(|at| at.elapsed() >= SAMPLE_INTERVAL);
        if is_due || at_once {
            self.recorder.write(&Line::Sample(pending));
            self.sampled_at = Some(Instant::now());
        } else {
            self.pending = Some(pending);
        }
    }

    /// Records the samples that were held back.
    pub(crate) fn flush_samples(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.recorder.write(&Line::Sample(pending));
        }
    }

    /// Records the end of what the training printed: `relayed` through brimful, and the rest from its files.
    pub(crate) fn outputs(&mut self, at_ms: u64, relayed: Vec<OutputLine>) {
        let direct = std::mem::take(&mut self.direct);
        let from_files = direct
            .into_iter()
            .filter_map(|mut direct| tail::of_file(&mut direct, at_ms));
        for output in relayed.into_iter().chain(from_files) {
            if !output.tail.is_empty() {
                self.recorder.write(&Line::Output(output));
            }
        }
    }

    /// What could not be written, once.
    pub(crate) fn take_problem(&mut self) -> Option<String> {
        self.recorder.take_problem()
    }

    /// The run's directory.
    pub(crate) fn directory(&self) -> Option<&'a Path> {
        self.stored.map(|run| run.directory.as_path())
    }

    /// The record as a reader finds it, if its end is in it.
    pub(crate) fn read_back(&self) -> Option<Record> {
        self.stored
            .and_then(|run| run.read().ok())
            .filter(Record::has_end)
    }

    /// Removes the keeper's exit status: the record has it.
    pub(crate) fn remove_exit_status(&self) {
        if let Some(directory) = self.directory() {
            exit_status::remove(directory);
        }
    }
}
