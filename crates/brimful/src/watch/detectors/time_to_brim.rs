//! Host memory reaches the brim soon if it continues to rise.

use crate::watch::alarm::{DetectorOutput, Urgency};
use crate::watch::danger::reaches_limit;
use crate::watch::detectors::Detector;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;

pub(crate) const DETECTOR: Detector = Detector {
    id: "time_to_brim",
    about: "Host memory rises and reaches its limit within an hour (note), ten minutes (warning), or before a \
            checkpoint could be written (critical). The rate is a robust slope of the peaks of the last minute, half \
            hour or day, as far as the job itself uses the memory: growth of other jobs raises no alarm. A trend is \
            extrapolated to three times its observed duration, or to half of it before the first step or if it was \
            observed for less than half a minute; a burst is reported at once. Growth that stays below an earlier peak \
            of the job is not reported.",
    check,
};

const WARNING_MS: u64 = 10 * 60_000;
const NOTE_MS: u64 = 60 * 60_000;

fn check(state: &WatchState, _sample: &Sample) -> Option<DetectorOutput> {
    let forecast = state.forecast()?;
    let urgency = if state.own_danger().is_some() {
        Urgency::Critical
    } else if forecast.is_known_ground || forecast.left_ms > NOTE_MS {
        return None;
    } else if forecast.left_ms < WARNING_MS {
        Urgency::Warning
    } else {
        Urgency::Note
    };
    let headroom = state.fresh_headroom()?;
    Some(DetectorOutput {
        urgency,
        message: reaches_limit(
            forecast.left_ms,
            headroom,
            state.host.limit(),
            forecast.rate,
        ),
    })
}

#[cfg(test)]
mod tests {
    use crate::units::Bytes;
    use crate::watch::alarm::Urgency;
    use crate::watch::sample::Sample;
    use crate::watch::testing::{
        GB, MB, check_alarms, check_quiet, host_series, slow_series, with_progress,
    };

    const ID: &str = "time_to_brim";

    #[test]
    fn a_rise_of_a_minute_is_a_warning_with_the_time_that_is_left() {
        let series = host_series(60, 13 * GB, |s| 10 * GB + s * 15 * MB);
        let series = with_progress(series, 2, 600);
        check_alarms(
            ID,
            &series,
            &[(
                Urgency::Warning,
                "host memory reaches its limit in about 2 minutes: 10 GiB of 12.1 GiB used, rising 14.3 MiB/s",
            )],
        );
    }

    #[test]
    fn a_slow_rise_is_a_note_first_and_gets_worse() {
        let series = slow_series(4, 13 * GB, |s| 3 * GB + s * MB * 7 / 10);
        let said = check_alarms(ID, &series, &[]);
        let urgencies: Vec<Urgency> = said.iter().map(|alarm| alarm.urgency).collect();
        assert_eq!(
            urgencies,
            [Urgency::Note, Urgency::Warning, Urgency::Critical]
        );
    }

    #[test]
    fn a_short_rise_carries_no_claim_about_minutes() {
        // Ten seconds of import and loading: the brim is 50 s away, seen for 10.
        check_quiet(
            ID,
            &host_series(120, 13 * GB, |s| GB + s.min(10) * 200 * MB),
        );
    }

    #[test]
    fn a_start_that_flattens_is_not_extrapolated() {
        // 25 s of loading, with nothing said of steps; at its end the brim would be 35 s away.
        let load = |s: u64| 2 * GB + s.min(25) * 190 * MB;
        check_quiet(ID, &host_series(120, 13 * GB, load));
        // The same while the training counts its steps: a cache that fills.
        check_quiet(ID, &with_progress(host_series(120, 13 * GB, load), 2, 600));
        // A minute and more before the first step.
        let slow = |s: u64| 2 * GB + s.min(60) * 80 * MB;
        check_quiet(ID, &with_progress(host_series(120, 13 * GB, slow), 0, 600));
    }

    #[test]
    fn the_rise_of_a_neighbour_is_not_said() {
        let mut series = with_progress(host_series(100, 13 * GB, |s| 8 * GB + s * 30 * MB), 2, 600);
        let own = |share: u64, series: &mut Vec<Sample>| {
            for sample in series {
                let host = sample.host.as_mut().unwrap();
                let taken = host.limit.saturating_sub(host.headroom).get();
                host.used = Bytes(GB + (taken - 8 * GB) * share / 100);
            }
        };
        own(20, &mut series);
        check_quiet(ID, &series);
        own(80, &mut series);
        assert!(!check_alarms(ID, &series, &[]).is_empty());
    }

    #[test]
    fn a_sawtooth_is_said_at_most_until_its_first_fall() {
        // Teeth of 100 s, from 4 to 9 GB, for an hour.
        let series = host_series(3600, 13 * GB, |s| 4 * GB + (s % 100) * 50 * MB);
        let said = check_alarms(ID, &series, &[]);
        assert!(said.iter().all(|alarm| alarm.at_ms < 100_000), "{said:?}");
        // Short teeth never.
        check_quiet(
            ID,
            &host_series(3600, 13 * GB, |s| 9 * GB + (s % 10) * 100 * MB),
        );
    }

    #[test]
    fn flat_is_silent_however_full() {
        check_quiet(ID, &slow_series(2, 13 * GB, |_| 13 * GB - 100 * MB));
    }
}
