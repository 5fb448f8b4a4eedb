//! What a caller sees while work is in progress.

use brimful_rehearse::Event;
use brimful_supervise::checkpoints::Checkpoints;

use crate::planned::PlannedJob;

/// One event of the work. How it is worded and where it is shown is up to the caller.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The next rehearsal starts, for example `rehearsal 2 (micro_batch 8)`.
    Rehearsal { label: String },
    /// One line about the current rehearsal.
    Line(String),
    /// Something to know before the next step, in a sentence.
    Notice(String),
    /// The command starts on the GPU itself, for this many steps.
    RunningForReal {
        gpu: String,
        steps: u32,
        /// What it writes goes to scratch.
        is_isolated: bool,
    },
    /// The script's torch has no CUDA, so the prediction is less accurate. Reported once.
    WithoutCuda { torch: String },
    /// This many earlier runs of the job are ignored from now on, as requested.
    Forgotten { n_runs: usize },
    /// Something in the job file is allowed but probably not what was meant.
    JobProblem(String),
    /// The plan for a run was made.
    Planned(&'a PlannedJob),
    /// The plan could not be made; the run starts with the settings of the job file.
    PlanFailed { error: String },
    /// The run resumes from a checkpoint that was there before it.
    Resuming(&'a Checkpoints),
    /// Nothing new: a chance to interrupt.
    Idle,
}

impl Progress<'static> {
    /// What a rehearsal tells.
    pub(crate) fn of_event(event: &Event) -> Progress<'static> {
        match (event, event.line()) {
            // Said wherever the rest is shown: what the script sends, it sends twice.
            (Event::Redirected, Some(line)) => Progress::Notice(line),
            (_, Some(line)) => Progress::Line(line),
            (_, None) => Progress::Idle,
        }
    }
}
