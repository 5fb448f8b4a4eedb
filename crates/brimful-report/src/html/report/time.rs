//! Moments of a run in words, and ticks on the time axis.

use brimful::calendar::civil;
use serde::Serialize;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Distances between ticks that people count in.
const STEPS: [u64; 24] = [
    100,
    200,
    500,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    20 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    20 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    28 * DAY,
];

const MAX_TICKS: u64 = 8;

/// A label below the time axis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TimeTick {
    pub(super) label: String,
    /// Percent of the width.
    pub(super) at: f64,
    /// `first` and `last` do not stand out over the ends of the axis.
    pub(super) class: &'static str,
}

/// Ticks of an axis that begins at 0.
pub(super) fn ticks_from_start(end_ms: u64) -> Vec<TimeTick> {
    ticks(end_ms, |ms| (ms, label(ms)))
}

/// Ticks of an axis that ends at the end of a run.
pub(super) fn ticks_to_end(span_ms: u64) -> Vec<TimeTick> {
    let mut found = ticks(span_ms, |ms| {
        let label = if ms == 0 {
            "end".to_owned()
        } else {
            format!("−{}", label(ms))
        };
        (span_ms - ms, label)
    });
    found.reverse();
    found
}

fn ticks(span_ms: u64, place: impl Fn(u64) -> (u64, String)) -> Vec<TimeTick> {
    let step = STEPS
        .into_iter()
        .find(|step| span_ms / step < MAX_TICKS)
        .unwrap_or_else(|| span_ms.div_ceil(MAX_TICKS).max(1));
    let count = span_ms / step;
    (0..=count)
        .map(|idx| {
            let (at_ms, label) = place(idx * step);
            let at = percent(at_ms, span_ms);
            let class = match at {
                at if at < 3.0 => "first",
                at if at > 97.0 => "last",
                _ => "",
            };
            TimeTick { label, at, class }
        })
        .collect()
}

/// A part of a whole in percent, to a hundredth.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    (part as f64 / whole as f64 * 10_000.0)
        .round()
        .clamp(0.0, 10_000.0)
        / 100.0
}

/// A moment on the axis: `90 s`, `20 min`, `3 h`.
fn label(ms: u64) -> String {
    let whole = |unit: u64| ms.is_multiple_of(unit);
    match ms {
        0 => "0".into(),
        ms if ms >= DAY && whole(DAY) => format!("{} d", ms / DAY),
        ms if ms >= HOUR && whole(HOUR) => format!("{} h", ms / HOUR),
        ms if ms >= MINUTE && whole(MINUTE) => format!("{} min", ms / MINUTE),
        ms if whole(SECOND) => format!("{} s", ms / SECOND),
        ms => format!("{:.1} s", ms as f64 / SECOND as f64),
    }
}

/// A time since the start of a run, or a length of time, with two units at most: `8.2 s`, `4 min 10 s`, `21 h 42 min`.
pub(super) fn exact(ms: u64) -> String {
    match ms {
        0..MINUTE => format!("{:.1} s", ms as f64 / SECOND as f64),
        MINUTE..HOUR => two_units((ms / MINUTE, "min"), (ms % MINUTE / SECOND, "s")),
        HOUR..DAY => two_units((ms / HOUR, "h"), (ms % HOUR / MINUTE, "min")),
        _ => two_units((ms / DAY, "d"), (ms % DAY / HOUR, "h")),
    }
}

fn two_units(large: (u64, &str), small: (u64, &str)) -> String {
    match small.0 {
        0 => format!("{} {}", large.0, large.1),
        _ => format!("{} {} {} {}", large.0, large.1, small.0, small.1),
    }
}

/// `2026-11-17 05:12 UTC`; nothing for a moment that was not recorded.
pub(super) fn date(unix_ms: u64) -> Option<String> {
    if unix_ms == 0 {
        return None;
    }
    let (year, month, day) = civil(unix_ms / DAY);
    let minutes = unix_ms / MINUTE % (24 * 60);
    Some(format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02} UTC",
        minutes / 60,
        minutes % 60
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let labels = |end_ms| {
            let ticks = ticks_from_start(end_ms);
            ticks.into_iter().map(|tick| tick.label).collect::<Vec<_>>()
        };
        assert_eq!(labels(9_400), ["0", "2 s", "4 s", "6 s", "8 s"]);
        assert_eq!(labels(21 * HOUR + 40 * MINUTE).last().unwrap(), "21 h");
        assert_eq!(labels(0), ["0"]);
        let ticks = ticks_to_end(20_000);
        assert_eq!(ticks[0].label, "−20 s");
        assert_eq!((ticks[4].label.as_str(), ticks[4].at), ("end", 100.0));
    }

    #[test]
    fn moments_are_told_in_two_units() {
        assert_eq!(exact(8_250), "8.2 s");
        assert_eq!(exact(250_000), "4 min 10 s");
        assert_eq!(exact(60_000), "1 min");
        assert_eq!(exact(78_120_000), "21 h 42 min");
        assert_eq!(exact(u64::MAX), "213503982334 d 14 h");
        assert_eq!(date(1_794_892_325_107).unwrap(), "2026-11-17 05:12 UTC");
    }

    proptest! {
        #[test]
        fn any_span_has_a_few_ticks_inside(span in any::<u64>()) {
            for ticks in [ticks_from_start(span), ticks_to_end(span)] {
                prop_assert!((1..=usize::try_from(MAX_TICKS).unwrap() + 1).contains(&ticks.len()));
                prop_assert!(ticks.iter().all(|tick| (0.0..=100.0).contains(&tick.at)));
            }
        }
    }
}
