//! What was seen so far.

use crate::watch::action::Action;
use crate::watch::alarm::Alarm;
use crate::watch::sample::Sample;

/// What the detectors remember of the samples so far, bounded in size however long the run.
#[derive(Clone, Debug, Default)]
pub struct WatchState {
    latest: Option<Sample>,
}

/// The watch over one attempt: samples in, alarms out.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    state: WatchState,
}

impl Watch {
    /// Takes one sample; says what is new in it. An alarm is said once and again only after it was over.
    pub fn observe(&mut self, sample: &Sample) -> Vec<Alarm> {
        self.state.latest = Some(sample.clone());
        Vec::new()
    }

    /// Tells the watch that an action was carried out (or said, in a dry run).
    pub fn acted(&mut self, _action: &Action, _at_ms: u64) {}

    pub fn state(&self) -> &WatchState {
        &self.state
    }
}

impl WatchState {
    pub fn latest(&self) -> Option<&Sample> {
        self.latest.as_ref()
    }

    /// Milliseconds until the brim is reached at the present rate, where there is a rise to speak of.
    pub fn time_to_brim_ms(&self) -> Option<u64> {
        None
    }

    /// Bytes per second that the job's host memory grows by at present.
    pub fn host_rate(&self) -> Option<f64> {
        None
    }
}
