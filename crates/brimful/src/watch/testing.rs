//! Series of samples for the tests, and what a watch says of them.

use std::cell::Cell;

use crate::units::Bytes;
use crate::watch::alarm::{Alarm, Urgency};
use crate::watch::observe::Watch;
use crate::watch::sample::{Gauge, HostSample, Sample};

pub(crate) const KB: u64 = 1_000;
pub(crate) const MB: u64 = 1_000_000;
pub(crate) const GB: u64 = 1_000_000_000;

pub(crate) fn host_sample(at_ms: u64, used: u64, limit: u64) -> Sample {
    Sample {
        at_ms,
        host: Some(HostSample {
            used: Bytes(used),
            limit: Bytes(limit),
            headroom: Bytes(limit.saturating_sub(used)),
            swapped: None,
        }),
        ..Sample::default()
    }
}

/// A sample every second; `used` by the second.
pub(crate) fn host_series(n_seconds: u64, limit: u64, used: impl Fn(u64) -> u64) -> Vec<Sample> {
    (0..n_seconds)
        .map(|second| host_sample(second * 1000, used(second), limit))
        .collect()
}

/// The same with a sample every ten seconds, for hours.
pub(crate) fn slow_series(n_hours: u64, limit: u64, used: impl Fn(u64) -> u64) -> Vec<Sample> {
    (0..n_hours * 3600)
        .step_by(10)
        .map(|second| host_sample(second * 1000, used(second), limit))
        .collect()
}

/// Gauges of a process with so many steps a second and seconds an epoch.
pub(crate) fn with_progress(
    mut series: Vec<Sample>,
    steps_per_second: u64,
    epoch_seconds: u64,
) -> Vec<Sample> {
    for sample in &mut series {
        let second = sample.at_ms / 1000;
        sample.gauges = vec![Gauge {
            pid: 7,
            steps: second * steps_per_second,
            epochs: 1 + second / epoch_seconds,
            ..Gauge::default()
        }];
    }
    series
}

/// Plays the series and returns what one detector said; `expected` says it whole unless it is empty.
pub(crate) fn check_alarms(
    detector: &str,
    series: &[Sample],
    expected: &[(Urgency, &str)],
) -> Vec<Alarm> {
    let mut watch = Watch::default();
    let said: Vec<Alarm> = series
        .iter()
        .flat_map(|sample| watch.observe(sample))
        .filter(|alarm| alarm.detector == detector)
        .collect();
    for alarm in &said {
        assert!(
            alarm.message.chars().count() <= 112,
            "too long for a line: {}",
            alarm.message
        );
    }
    if !expected.is_empty() {
        let found: Vec<(Urgency, &str)> = said
            .iter()
            .map(|alarm| (alarm.urgency, alarm.message.as_str()))
            .collect();
        assert_eq!(found, expected);
    }
    said
}

/// Plays the series and asserts that the detector keeps quiet.
pub(crate) fn check_quiet(detector: &str, series: &[Sample]) {
    let said = check_alarms(detector, series, &[]);
    assert!(said.is_empty(), "{said:?}");
}

/// Even numbers from 0 to 1 that are the same every time.
pub(crate) struct Noise(Cell<u64>);

impl Noise {
    pub(crate) fn new(seed: u64) -> Noise {
        Noise(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))
    }

    pub(crate) fn next(&self) -> f64 {
        // xorshift64*: good enough for noise.
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&self, most: u64) -> u64 {
        crate::units::rounded(self.next() * most as f64)
    }
}
