//! Scales, ticks and paths: pure functions from values to the coordinates of an SVG of `n` columns by 1000.

use std::fmt::Write;

use brimful::units::Bytes;
use serde::Serialize;

/// Height of every chart in its own coordinates.
pub(super) const HEIGHT: u64 = 1000;

/// Ticks beside the limit are left out: the labels would overlap.
const NEAR: u64 = 90;
const MAX_TICKS: u64 = 4;

/// The vertical axis of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    bottom: u64,
    top: u64,
    /// The limit, if it is on the scale.
    pub(super) limit: Option<Bytes>,
}

/// Two digits after the point, which is more than any screen shows.
pub(super) fn hundredth(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The step between ticks on an axis to `max`: 1, 2 or 5 times a power of ten, with at most `max_ticks` steps.
pub(super) fn round_step(max: f64, max_ticks: f64) -> f64 {
    let power = 10_f64.powf((max / 4.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| max / step <= max_ticks)
        .unwrap_or(max)
}

/// A line across the chart and its label.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Tick {
    pub(super) label: String,
    /// In the chart's own coordinates.
    pub(super) y: u64,
    /// Percent of the height.
    pub(super) at: f64,
}

impl Scale {
    /// From 0 to the limit, and a little beyond.
    pub(super) fn to_limit(highest: Bytes, limit: Option<Bytes>) -> Scale {
        let top = highest.max(limit.unwrap_or_default());
        Scale::between(Bytes::ZERO, top, limit)
    }

    /// From 0 to the highest value; to the limit if that is not far above.
    pub(super) fn to_highest(highest: Bytes, limit: Option<Bytes>) -> Scale {
        let near = limit.filter(|limit| highest.get() >= limit.get() / 8);
        Scale::to_limit(highest, near)
    }

    /// Room above is added.
    pub(super) fn between(bottom: Bytes, top: Bytes, limit: Option<Bytes>) -> Scale {
        let bottom = bottom.get().min(top.get().saturating_sub(1));
        let top = top
            .get()
            .saturating_add((top.get() - bottom) / 12)
            .max(bottom.saturating_add(1));
        Scale {
            bottom,
            top,
            limit: limit.filter(|limit| (bottom..=top).contains(&limit.get())),
        }
    }

    pub(super) fn top(&self) -> u64 {
        self.top
    }

    /// The coordinate of a value: 0 at the top.
    pub(super) fn y(&self, value: Bytes) -> u64 {
        let value = value.get().clamp(self.bottom, self.top) - self.bottom;
        let share = u128::from(value) * u128::from(HEIGHT) / u128::from(self.top - self.bottom);
        HEIGHT - u64::try_from(share).unwrap_or(HEIGHT)
    }

    /// The same in percent of the height.
    pub(super) fn at(&self, value: Bytes) -> f64 {
        self.y(value) as f64 / 10.0
    }

    /// The ground, the limit, and round values between.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let span = self.top - self.bottom;
        let (unit, name) = unit(self.top);
        let step = step(span, unit);
        let mut ticks: Vec<Tick> = Vec::new();
        let limit_y = self.limit.map(|limit| self.y(limit));
        let mut value = self.bottom.div_ceil(step).saturating_mul(step);
        while value <= self.top {
            let y = self.y(Bytes(value));
            if limit_y.is_none_or(|limit| limit.abs_diff(y) > NEAR) && y > NEAR / 2 {
                ticks.push(self.tick(Bytes(value), number(value, unit)));
            }
            let Some(next) = value.checked_add(step) else {
                break;
            };
            value = next;
        }
        if let Some(limit) = self.limit {
            ticks.push(self.tick(limit, limit.to_string()));
        } else if let Some(highest) = ticks.last_mut() {
            highest.label = format!("{} {name}", highest.label);
        }
        ticks
    }

    fn tick(&self, value: Bytes, label: String) -> Tick {
        Tick {
            label,
            y: self.y(value),
            at: self.at(value),
        }
    }
}

/// The unit in which an axis is labelled.
fn unit(top: u64) -> (u64, &'static str) {
    match top {
        Bytes::TIB.. => (Bytes::TIB, "TiB"),
        Bytes::GIB.. => (Bytes::GIB, "GiB"),
        Bytes::MIB.. => (Bytes::MIB, "MiB"),
        Bytes::KIB.. => (Bytes::KIB, "KiB"),
        _ => (1, "B"),
    }
}

/// A round distance of ticks in this unit, so that there are at most four or five.
fn step(span: u64, unit: u64) -> u64 {
    let wanted = u128::from(span.div_ceil(MAX_TICKS).max(1));
    let mut power = 1_u128;
    loop {
        // Hundredths of the unit.
        for factor in [100, 200, 250, 500] {
            let step = u128::from(unit) * factor * power / 10_000;
            if step >= wanted {
                return u64::try_from(step).unwrap_or(u64::MAX / 2);
            }
        }
        power *= 10;
    }
}

fn number(value: u64, unit: u64) -> String {
    let text = format!("{:.2}", value as f64 / unit as f64);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

/// A staircase through the values, one column each; it pauses where there is none.
pub(super) fn line(values: impl IntoIterator<Item = Option<Bytes>>, scale: &Scale) -> String {
    path(values, scale, None)
}

/// The area between the values and the ground.
pub(super) fn area(values: impl IntoIterator<Item = Option<Bytes>>, scale: &Scale) -> String {
    path(values, scale, Some(HEIGHT))
}

/// The area between the values and another coordinate.
pub(super) fn area_to(
    values: impl IntoIterator<Item = Option<Bytes>>,
    scale: &Scale,
    floor: u64,
) -> String {
    path(values, scale, Some(floor))
}

fn path(
    values: impl IntoIterator<Item = Option<Bytes>>,
    scale: &Scale,
    floor: Option<u64>,
) -> String {
    let mut out = String::new();
    let mut height = None;
    let mut end = 0;
    let close = |out: &mut String, x: usize| {
        let _ = write!(out, "H{x}");
        if let Some(floor) = floor {
            let _ = write!(out, "V{floor}Z");
        }
    };
    for (x, value) in values.into_iter().enumerate() {
        end = x + 1;
        let y = value.map(|value| scale.y(value));
        match (height, y) {
            (None, Some(y)) => {
                let _ = match floor {
                    Some(floor) => write!(out, "M{x} {floor}V{y}"),
                    None => write!(out, "M{x} {y}"),
                };
            }
            (Some(before), Some(y)) if before != y => {
                let _ = write!(out, "H{x}V{y}");
            }
            (Some(_), None) => close(&mut out, x),
            _ => {}
        }
        height = y;
    }
    if height.is_some() {
        close(&mut out, end);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(of: &[Option<u64>]) -> Vec<Option<Bytes>> {
        of.iter().map(|value| value.map(Bytes)).collect()
    }

    #[test]
    fn a_path_rises_falls_and_pauses() {
        let scale = Scale::between(Bytes::ZERO, Bytes(12), None);
        assert_eq!(scale.top(), 13);
        let of = values(&[Some(0), Some(0), Some(13), None, Some(13)]);
        assert_eq!(line(of.clone(), &scale), "M0 1000H2V0H3M4 0H5");
        assert_eq!(
            area(of, &scale),
            "M0 1000V1000H2V0H3V1000ZM4 1000V0H5V1000Z"
        );
        assert_eq!(line([], &scale), "");
    }

    #[test]
    fn ticks_are_round_and_name_the_limit() {
        let labels = |scale: Scale| {
            let ticks = scale.ticks().into_iter();
            ticks.map(|tick| tick.label).collect::<Vec<_>>()
        };
        let gib = Bytes::from_gib;
        assert_eq!(
            labels(Scale::to_limit(gib(63), Some(gib(64)))),
            ["0", "20", "40", "64 GiB"]
        );
        assert_eq!(
            labels(Scale::to_highest(gib(1), Some(gib(64)))),
            ["0", "0.5", "1 GiB"]
        );
        assert_eq!(
            labels(Scale::between(gib(56), gib(64), Some(gib(64)))),
            ["57.5", "60", "62.5", "64 GiB"]
        );
        assert_eq!(labels(Scale::to_limit(Bytes::ZERO, None)), ["0 B"]);
    }

    proptest! {
        #[test]
        fn no_value_leaves_the_chart(bottom in any::<u64>(), top in any::<u64>(), limit in any::<u64>(), value in any::<u64>()) {
            let scale = Scale::between(Bytes(bottom), Bytes(top), Some(Bytes(limit)));
            prop_assert!(scale.y(Bytes(value)) <= HEIGHT);
            prop_assert!(scale.ticks().len() <= 12);
            prop_assert!(scale.ticks().iter().all(|tick| tick.y <= HEIGHT));
        }

        #[test]
        fn a_path_has_a_bounded_length(of in prop::collection::vec(prop::option::of(any::<u64>()), 0..720)) {
            let scale = Scale::to_limit(Bytes(u64::MAX), None);
            prop_assert!(area(values(&of), &scale).len() <= 22 * of.len() + 16);
        }
    }
}
