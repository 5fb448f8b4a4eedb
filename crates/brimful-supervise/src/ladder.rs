//! What several attempts of one run are made of: who says what comes next, and what it is told about the last one.
//!
//! Which rung comes next is decided elsewhere (`brimful::plan`); this crate starts what it is given.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use brimful::explain::Verdict;
use brimful::job::Settings;
use brimful::plan::{Change, Observed, PlanBrim};
use brimful::record::{Outcome, Peaks};
use brimful::units::Bytes;

/// What to start, and what is different about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NextAttempt {
    pub command: Vec<OsString>,
    /// Set for the training, beside what brimful has itself.
    pub variables: Vec<(OsString, OsString)>,
    pub settings: Option<Settings>,
    /// What the plan predicts for them, of each limit.
    pub predicted: Vec<PlanBrim>,
    /// What differs from the attempt before.
    pub changed: Vec<Change>,
    /// What the next rung of the plan would change, where there is one.
    pub next_rung: Vec<Change>,
    pub resumed_from: Option<PathBuf>,
    /// Patterns of the job's checkpoints, which are looked for while it runs.
    pub checkpoints: Vec<String>,
    /// The checkpoint's step and the time since it was written, where they are known.
    pub checkpoint_step: Option<u64>,
    pub checkpoint_age_ms: Option<u64>,
    /// A sentence for each checkpoint that is not resumed from: which one, and why.
    pub refused: Vec<String>,
    /// Samples per optimizer step, the same in every attempt.
    pub effective_batch: Option<u64>,
    /// Why this and not something else, in one sentence.
    pub why: String,
}

/// How an attempt ended, and what was seen of it.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptEnd {
    /// From 1.
    pub number: u32,
    pub settings: Option<Settings>,
    pub outcome: Outcome,
    pub verdict: Verdict,
    /// Alarms that did not come true.
    pub n_false_alarms: u32,
    pub peaks: Peaks,
    /// The brim.
    pub limit: Option<Bytes>,
    pub wall_ms: u64,
    pub observed: Observed,
    /// The training's own, or 128 and the signal.
    pub exit_code: u8,
    /// The signal that ended the training.
    pub signal: Option<i32>,
}

/// Says what comes next.
pub trait Ladder {
    fn first(&mut self) -> NextAttempt;

    /// None: no further attempt (it finished, it is not memory, the ladder is at its end).
    ///
    /// Not asked where the user ended the attempt. `pause` waits, and returns false if the user ends the run meanwhile.
    fn next(
        &mut self,
        ended: &AttemptEnd,
        pause: &mut dyn FnMut(Duration) -> bool,
    ) -> Option<NextAttempt>;

    /// The user has ended the run.
    fn stopped(&mut self) {}

    /// The most attempts that there can be, where that is known.
    fn max_attempts(&self) -> Option<u32> {
        None
    }
}
