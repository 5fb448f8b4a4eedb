//! What one frame is drawn from.

use brimful::explain::Verdict;
use brimful::live::LiveRun;

use crate::controls::Controls;
use crate::look::Look;

/// Everything a frame depends on: the same values give the same frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) live: &'a LiveRun,
    pub(crate) state: RunState,
    /// Seconds without a new line of a run in progress, where that is unusual.
    pub(crate) quiet_seconds: Option<u64>,
    /// The verdict on the last attempt, if it was asked for.
    pub(crate) verdict: Option<&'a Verdict>,
    pub(crate) controls: Controls,
    /// Whether there is somebody to press keys.
    pub(crate) is_interactive: bool,
    pub(crate) look: Look,
}

/// Whether the run is still in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunState {
    Running,
    /// The attempt has ended and the supervisor has not.
    BetweenAttempts,
    Ended,
    /// Nobody recorded its end.
    CutOff,
}

impl RunState {
    /// `is_running`: whether the supervisor or the training process is alive.
    pub(crate) fn of(live: &LiveRun, is_running: bool) -> RunState {
        match (live.end().is_some(), is_running) {
            (true, true) => RunState::BetweenAttempts,
            (true, false) => RunState::Ended,
            (false, true) => RunState::Running,
            (false, false) => RunState::CutOff,
        }
    }
}
