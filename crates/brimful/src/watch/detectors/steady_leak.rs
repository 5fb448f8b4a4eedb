//! Memory that grows with every step or epoch and is never freed.

use crate::units::rounded;
use crate::watch::alarm::{DetectorOutput, Urgency};
use crate::watch::detectors::Detector;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;
use crate::watch::trend::Trend;
use crate::watch::words::{size_of, span};

pub(super) const DETECTOR: Detector = Detector {
    id: "steady_leak",
    about: "The host memory of the job grows steadily: from epoch to epoch (peaks of at least six epochs, without the first), \
            or over at least ten minutes or two hours if epochs are unknown or long. Data loading, a warm-up, a \
            cache that fills up and a sawtooth do not count: their growth is not spread evenly over time. Before \
            three epochs are complete it is a note, because a cache that fills up looks the same. Not raised if \
            the limit is more than a week away.",
    check,
};

/// So many complete epochs, and they are what is compared: an epoch may be one long tooth of a sawtooth.
const EPOCHS_TELL: usize = 3;
const WORTH_SAYING_MS: f64 = 7.0 * 86_400e3;
const WARNING_MS: f64 = 86_400e3;
/// Less than this share of the limit over all that was seen is no growth to speak of.
const LEAST_SHARE: f64 = 0.005;

/// A rise with its unit.
struct Leak {
    bytes_per_ms: f64,
    per_unit: Option<(f64, &'static str)>,
    rise: f64,
    seen_ms: f64,
    /// What an epoch's peak takes beyond the present use.
    to_peak: u64,
}

fn check(state: &WatchState, _sample: &Sample) -> Option<DetectorOutput> {
    let headroom = state.fresh_headroom()?;
    let by_epochs = state.progress.n_done() >= EPOCHS_TELL;
    let leak = if by_epochs {
        epoch_leak(state)?
    } else {
        time_leak(state)?
    };
    let left_ms = headroom.saturating_sub(leak.to_peak) as f64 / leak.bytes_per_ms;
    let too_little = leak.rise < LEAST_SHARE * state.host.limit() as f64;
    if too_little || leak.bytes_per_ms <= 0.0 || left_ms > WORTH_SAYING_MS {
        return None;
    }
    let per_hour = size_of(leak.bytes_per_ms * 3.6e6);
    let rate = match leak.per_unit {
        Some((bytes, unit)) => format!("{} per {unit} ({per_hour}/h)", size_of(bytes)),
        None => format!("{per_hour} per hour"),
    };
    let end = span(rounded(left_ms));
    if !by_epochs && state.progress.epoch().is_some() {
        return Some(DetectorOutput {
            urgency: Urgency::Note,
            message: format!(
                "host memory grows by {rate}: a leak or a cache; reaches the limit in about {end}"
            ),
        });
    }
    Some(DetectorOutput {
        urgency: if left_ms < WARNING_MS {
            Urgency::Warning
        } else {
            Urgency::Note
        },
        message: format!(
            "possible host memory leak: +{rate} for {}; reaches the limit in about {end}",
            span(rounded(leak.seen_ms))
        ),
    })
}

fn epoch_leak(state: &WatchState) -> Option<Leak> {
    let trend = state.progress.growth_per_epoch().filter(Trend::is_steady)?;
    let epoch_ms = state.progress.epoch_ms()?.max(1) as f64;
    Some(Leak {
        bytes_per_ms: trend.slope / epoch_ms,
        per_unit: Some((trend.slope, "epoch")),
        rise: trend.rise(),
        seen_ms: trend.span * epoch_ms,
        to_peak: state
            .progress
            .last_peak()?
            .saturating_sub(state.host.last()?.used),
    })
}

fn time_leak(state: &WatchState) -> Option<Leak> {
    let found = state.host.leak()?;
    let per_step = |rate: f64| (found.trend.slope / rate, "step");
    Some(Leak {
        bytes_per_ms: found.trend.slope / 1e3,
        per_unit: found.steps_per_second.map(per_step),
        rise: found.trend.rise(),
        seen_ms: found.trend.span * 1e3,
        to_peak: 0,
    })
}

#[cfg(test)]
mod tests {
    use crate::watch::alarm::Urgency;
    use crate::watch::sample::Sample;
    use crate::watch::testing::{
        GB, KB, MB, Noise, check_alarms, check_quiet, slow_series, with_progress,
    };

    const ID: &str = "steady_leak";
    const HOUR: u64 = 3600;

    /// Two steps a second, epochs of ten minutes.
    fn epochs(n_hours: u64, used: impl Fn(u64) -> u64) -> Vec<Sample> {
        with_progress(slow_series(n_hours, 13 * GB, used), 2, 600)
    }

    #[test]
    fn a_leak_without_gauges_is_said_by_the_hour() {
        check_alarms(
            ID,
            &slow_series(1, 13 * GB, |s| 4 * GB + s * 300 * KB),
            &[(
                Urgency::Warning,
                "possible host memory leak: +1 GiB per hour for 10 minutes; reaches the limit in about 8 hours",
            )],
        );
    }

    #[test]
    fn a_leak_in_the_first_epoch_may_be_a_cache() {
        let series = with_progress(
            slow_series(1, 13 * GB, |s| 4 * GB + s * 300 * KB),
            2,
            2 * HOUR,
        );
        check_alarms(
            ID,
            &series,
            &[(
                Urgency::Note,
                "host memory grows by 146 KiB per step (1 GiB/h): a leak or a cache; reaches the limit in about 8 hours",
            )],
        );
    }

    #[test]
    fn a_leak_from_epoch_to_epoch_is_seen_through_its_sawtooth() {
        let series = epochs(3, |s| 4 * GB + (s % 600) * 2 * MB + s / 600 * 150 * MB);
        let said = check_alarms(ID, &series, &[]);
        let last = said.last().unwrap();
        assert_eq!(
            last.message,
            "possible host memory leak: +143 MiB per epoch (858 MiB/h) for 50 minutes; reaches the limit in about 8 hours"
        );
    }

    #[test]
    fn an_epoch_that_rises_and_falls_is_no_leak() {
        let said = check_alarms(ID, &epochs(6, |s| 4 * GB + (s % 600) * 5 * MB), &[]);
        // Within the first epoch nobody can know.
        assert!(
            said.iter()
                .all(|alarm| alarm.at_ms <= 600_000 && alarm.urgency == Urgency::Note),
            "{said:?}"
        );
    }

    #[test]
    fn loads_warm_ups_and_caches_are_no_leak() {
        check_quiet(
            ID,
            &slow_series(6, 13 * GB, |s| 2 * GB + s.min(300) * 20 * MB),
        );
        check_quiet(
            ID,
            &slow_series(6, 13 * GB, |s| if s < HOUR { GB } else { 6 * GB }),
        );
        // Half an epoch long; a whole one could not be told from a leak before the next.
        check_quiet(
            ID,
            &epochs(6, |s| 2 * GB + s.min(300) * 10 * MB + s % 7 * 20 * MB),
        );
    }

    #[test]
    fn noise_is_no_leak() {
        let noise = Noise::new(3);
        check_quiet(
            ID,
            &slow_series(12, 13 * GB, |_| 5 * GB + noise.below(500 * MB)),
        );
    }

    #[test]
    fn a_slow_leak_below_noise_is_seen_within_hours() {
        let noise = Noise::new(3);
        let series = slow_series(12, 13 * GB, |s| {
            5 * GB + s * 40 * KB + noise.below(300 * MB)
        });
        let said = check_alarms(ID, &series, &[]);
        assert!(said[0].at_ms < 3 * HOUR * 1000, "{said:?}");
    }
}
