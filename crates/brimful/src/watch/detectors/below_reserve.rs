//! Little host memory is left.

use crate::units::rounded;
use crate::watch::alarm::{DetectorOutput, Urgency};
use crate::watch::danger::REACTION_MS;
use crate::watch::detectors::Detector;
use crate::watch::looks::interval_ms;
use crate::watch::sample::Sample;
use crate::watch::state::WatchState;
use crate::watch::words::size;

pub(super) const DETECTOR: Detector = Detector {
    id: "below_reserve",
    about: "Less host memory is left than a reserve of 3 % of the limit (at most 2 GiB), or less than the current growth uses \
            before anyone can react. A warning if usage is stable: many jobs run this way for hours, but one larger batch \
            may be too much. Critical if usage is rising towards the brim.",
    check,
};

/// On a server of 512 GiB 3 % would be 15 GiB: room enough for anything.
const MAX_RESERVE: u64 = 2 << 30;

fn check(state: &WatchState, _sample: &Sample) -> Option<DetectorOutput> {
    let headroom = state.fresh_headroom()?;
    let limit = state.host.limit();
    let rate = state.steepest_fall();
    let blind_ms = REACTION_MS + interval_ms(headroom, rate);
    let taken_blindly = rounded(rate * blind_ms as f64 / 1e3);
    let reserve = (limit / 100)
        .saturating_mul(3)
        .min(MAX_RESERVE)
        .max(taken_blindly);
    let over_above = if state.standing(DETECTOR.id).is_some() {
        reserve.saturating_add(reserve / 2)
    } else {
        reserve
    };
    if headroom >= over_above {
        return None;
    }
    let in_danger = state.own_danger().is_some();
    Some(DetectorOutput {
        urgency: if in_danger {
            Urgency::Critical
        } else {
            Urgency::Warning
        },
        message: format!(
            "only {} of {} host memory is left, {}",
            size(headroom),
            size(limit),
            if in_danger {
                "and usage is still rising"
            } else {
                "which may not be enough for the next batch"
            }
        ),
    })
}

#[cfg(test)]
mod tests {
    use crate::watch::alarm::Urgency;
    use crate::watch::testing::{GB, MB, check_alarms, check_quiet, host_series};

    const ID: &str = "below_reserve";

    #[test]
    fn full_and_flat_is_a_warning_said_once() {
        check_alarms(
            ID,
            &host_series(3600, 10 * GB, |_| 9_800 * MB),
            &[(
                Urgency::Warning,
                "only 191 MiB of 9.3 GiB host memory is left, which may not be enough for the next batch",
            )],
        );
    }

    #[test]
    fn ninety_three_percent_is_no_alarm() {
        check_quiet(ID, &host_series(3600, 2 * GB, |_| 1_860 * MB));
    }

    #[test]
    fn a_flicker_around_the_reserve_is_one_alarm() {
        let series = host_series(3600, 10 * GB, |s| 9_690 * MB + (s % 2) * 20 * MB);
        assert_eq!(check_alarms(ID, &series, &[]).len(), 1);
    }

    #[test]
    fn it_is_said_again_after_it_was_over() {
        let series = host_series(600, 10 * GB, |s| {
            if (s / 200) % 2 == 0 {
                9_900 * MB
            } else {
                5 * GB
            }
        });
        assert_eq!(check_alarms(ID, &series, &[]).len(), 2);
    }

    #[test]
    fn falling_through_it_is_critical() {
        let series = host_series(100, 10 * GB, |s| 9 * GB + s * 10 * MB);
        let said = check_alarms(ID, &series, &[]);
        assert_eq!(said.last().unwrap().urgency, Urgency::Critical);
    }
}
