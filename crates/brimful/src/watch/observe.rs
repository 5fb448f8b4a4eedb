//! The watch over one attempt: runs the detectors over each sample.

use crate::watch::action::Action;
use crate::watch::alarm::Alarm;
use crate::watch::detectors::CATALOGUE;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;

/// The watch over one attempt: samples in, alarms out.
///
/// ```
/// use brimful::units::Bytes;
/// use brimful::watch::{Gauge, HostSample, Sample, Watch};
///
/// let mut watch = Watch::default();
/// let mut said = Vec::new();
/// for second in 0..60 {
///     let used = Bytes::from_gib(10).saturating_add(Bytes::from_mib(12 * second));
///     let limit = Bytes::from_gib(12);
///     said.extend(watch.observe(&Sample {
///         at_ms: second * 1000,
///         host: Some(HostSample { used, limit, headroom: limit.saturating_sub(used), swapped: None }),
///         gauges: vec![Gauge { pid: 7, steps: second, ..Gauge::default() }],
///         ..Sample::default()
///     }));
/// }
/// assert_eq!(
///     said[0].message,
///     "host memory reaches its limit in about 2 minutes: 10.5 GiB of 12 GiB used, rising 12 MiB/s"
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Watch {
    state: WatchState,
}

impl Watch {
    /// Takes one sample; says what is new in it. An alarm is said once, again when it gets worse, and again after it
    /// was over.
    pub fn observe(&mut self, sample: &Sample) -> Vec<Alarm> {
        self.state.take(sample);
        let mut alarms = Vec::new();
        for detector in CATALOGUE {
            let told = detector.check(&self.state, sample);
            alarms.extend(self.state.say(detector.id, told));
        }
        alarms
    }

    /// Tells the watch that an action was carried out (or said, in a dry run).
    pub fn acted(&mut self, action: &Action, at_ms: u64) {
        let headroom = self.state.fresh_headroom().unwrap_or(0);
        let danger = self.state.danger();
        self.state
            .pressure_mut()
            .acted(action, at_ms, headroom, danger.as_ref());
    }

    pub fn state(&self) -> &WatchState {
        &self.state
    }
}
