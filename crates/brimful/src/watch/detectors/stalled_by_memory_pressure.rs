//! Tasks are stalled on memory.

use crate::watch::alarm::{DetectorOutput, Urgency};
use crate::watch::detectors::Detector;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;
use crate::watch::words::{size, span};

pub(super) const DETECTOR: Detector = Detector {
    id: "stalled_by_memory_pressure",
    about: "Over up to ten seconds and at least three samples, all tasks were stalled on memory for 10 % of the time (warning), \
            or some were for 30 % (note): the kernel reclaims pages that are needed again at once. systemd-oomd kills \
            whole cgroups at 60 % for 30 s. Not raised while more than a quarter of the limit is left: tasks then wait \
            for page cache, which is not a lack of memory.",
    check,
};

const FULL_PERCENT: f64 = 10.0;
const SOME_PERCENT: f64 = 30.0;

fn check(state: &WatchState, sample: &Sample) -> Option<DetectorOutput> {
    sample.stall?;
    let mean = state.stalls.mean()?;
    let ease = if state.standing(DETECTOR.id).is_some() {
        0.5
    } else {
        1.0
    };
    let (urgency, who, percent) = if mean.full_percent >= FULL_PERCENT * ease {
        (Urgency::Warning, "all tasks", mean.full_percent)
    } else if mean.some_percent >= SOME_PERCENT * ease {
        (Urgency::Note, "tasks", mean.some_percent)
    } else {
        return None;
    };
    let headroom = state.fresh_headroom();
    if headroom.is_some_and(|headroom| headroom > state.host.limit() / 4) {
        return None;
    }
    let left = headroom.map(|headroom| format!("; {} left before the limit", size(headroom)));
    Some(DetectorOutput {
        urgency,
        message: format!(
            "{who} stalled on memory for {percent:.0} % of the last {}{}",
            span(mean.span_ms),
            left.unwrap_or_default()
        ),
    })
}

#[cfg(test)]
mod tests {
    use crate::watch::alarm::Urgency;
    use crate::watch::sample::{Sample, Stall};
    use crate::watch::testing::{GB, check_alarms, check_quiet, host_series};

    const ID: &str = "stalled_by_memory_pressure";

    fn series(full: impl Fn(u64) -> f64) -> Vec<Sample> {
        let mut series = host_series(120, 10 * GB, |_| 9 * GB);
        for (second, sample) in (0..).zip(&mut series) {
            let full_percent = full(second);
            sample.stall = Some(Stall {
                some_percent: full_percent,
                full_percent,
            });
        }
        series
    }

    #[test]
    fn waiting_for_seconds_is_said_once() {
        check_alarms(
            ID,
            &series(|_| 34.0),
            &[(
                Urgency::Warning,
                "all tasks stalled on memory for 34 % of the last 3.0 s; 954 MiB left before the limit",
            )],
        );
    }

    #[test]
    fn a_moment_of_waiting_is_nothing() {
        check_quiet(ID, &series(|s| if s == 60 { 80.0 } else { 0.0 }));
        check_quiet(ID, &series(|_| f64::NAN));
    }
}
