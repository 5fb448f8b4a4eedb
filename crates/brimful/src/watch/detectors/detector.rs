//! One entry of the catalogue of detectors.

use crate::watch::alarm::DetectorOutput;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;

/// One entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Detector {
    pub id: &'static str,
    /// For the reference page: when it raises an alarm, and why that matters.
    pub about: &'static str,
    pub(super) check: fn(&WatchState, &Sample) -> Option<DetectorOutput>,
}

impl Detector {
    pub(crate) fn check(&self, state: &WatchState, sample: &Sample) -> Option<DetectorOutput> {
        (self.check)(state, sample)
    }
}
