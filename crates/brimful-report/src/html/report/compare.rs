//! A comparison of GPUs: time against cost.

use serde::Serialize;

use crate::html::report::chart::{Tick, hundredth, round_step};
use crate::html::report::page::{Frame, Renderer};
use crate::html::report::shown::Shown;
use crate::html::report::time::TimeTick;
use crate::json::{CompareDocument, ComparedGpu};
use crate::text::{cost_words, hours_words, rate as rounded_rate};

/// A document may come from anybody.
const MAX_CANDIDATES: usize = 40;

/// The view.
#[derive(Debug, Serialize)]
struct TimeAgainstCost {
    about: &'static str,
    described: String,
    points: Vec<Point>,
    x_ticks: Vec<TimeTick>,
    y_ticks: Vec<Tick>,
    has_cost: bool,
    has_settings: bool,
    bars: Vec<Bar>,
    table: Vec<Row>,
    notes: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct Point {
    left: f64,
    top: f64,
    class: &'static str,
    glyph: &'static str,
    name: Shown,
    text: Shown,
    before: bool,
}

/// Hours of one candidate, from the low to the high end.
#[derive(Debug, Serialize)]
struct Bar {
    name: Shown,
    from: f64,
    width: f64,
    likely: f64,
    words: String,
    fits: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    name: Shown,
    gpu: Shown,
    memory: &'static str,
    class: &'static str,
    rate: String,
    hours: String,
    cost: String,
    settings: Option<Shown>,
}

/// The page of a comparison.
pub fn compare_report(document: &CompareDocument) -> Result<String, minijinja::Error> {
    let mut renderer = Renderer::new();
    renderer.add(include_str!("compare.html"), &TimeAgainstCost::of(document))?;
    let headline = match (&document.fastest, &document.cheapest) {
        (Some(fastest), Some(cheapest)) if fastest == cheapest => {
            format!("{fastest} is the fastest and the cheapest")
        }
        (Some(fastest), Some(cheapest)) => {
            format!("{fastest} is the fastest, {cheapest} the cheapest")
        }
        (Some(fastest), None) => format!("{fastest} is the fastest"),
        _ => "No candidate fits with a known time".to_owned(),
    };
    renderer.page(&Frame {
        subject: "comparison",
        headline: Shown::of(&headline),
        state: None,
        command: Some(Shown::command(&document.command)),
        facts: vec![Shown::of(&format!("torch {}", document.torch_version))],
        tiles: Vec::new(),
        footer: Shown::of(&format!(
            "Written by brimful {} from a rehearsal of the command without a GPU. Times are calculated, except those of settings that were measured in a run. The page loads nothing from the network.",
            env!("CARGO_PKG_VERSION")
        )),
    })
}

impl TimeAgainstCost {
    fn of(document: &CompareDocument) -> TimeAgainstCost {
        let shown: Vec<&ComparedGpu> = document.candidates.iter().take(MAX_CANDIDATES).collect();
        let hours = |found: &ComparedGpu| found.hours.map(|range| range.likely);
        let cost = |found: &ComparedGpu| found.cost.map(|range| range.likely);
        let highest = |of: &dyn Fn(&ComparedGpu) -> Option<f64>| {
            shown
                .iter()
                .filter_map(|found| of(found))
                .fold(0.0, f64::max)
        };
        let (max_hours, max_cost) = (highest(&hours) * 1.08, highest(&cost) * 1.12);
        let longest = shown
            .iter()
            .filter_map(|found| found.hours)
            .map(|range| range.high)
            .fold(0.0, f64::max);
        let points: Vec<Point> = shown
            .iter()
            .filter_map(|found| {
                let (hours, cost) = (hours(found)?, cost(found)?);
                let left = share(hours, max_hours);
                Some(Point {
                    left,
                    top: hundredth(100.0 - share(cost, max_cost)),
                    class: if found.fits { "fits" } else { "refused" },
                    glyph: if found.fits { "●" } else { "×" },
                    name: Shown::of(&found.name),
                    text: Shown::of(&format!(
                        "{}: {}, {}{}",
                        found.name,
                        hours_words(hours),
                        cost_words(cost),
                        if found.fits { "" } else { ", does not fit" }
                    )),
                    before: left > 70.0,
                })
            })
            .collect();
        let bars = shown.iter().filter_map(|found| {
            let range = found.hours?;
            Some(Bar {
                name: Shown::of(&found.name),
                from: share(range.low, longest),
                width: share(range.high - range.low, longest).max(0.4),
                likely: share(range.likely, longest),
                words: if found.fits {
                    format!(
                        "{} ({} to {})",
                        hours_words(range.likely),
                        hours_words(range.low),
                        hours_words(range.high)
                    )
                } else {
                    "does not fit".to_owned()
                },
                fits: found.fits,
            })
        });
        let notes = document.length.missing.iter();
        TimeAgainstCost {
            about: "Further left is faster, further down is cheaper.",
            described: format!(
                "{} candidates by time and cost; the table has the same values",
                points.len()
            ),
            has_cost: points.len() > 1,
            has_settings: shown.iter().any(|found| found.settings.is_some()),
            x_ticks: hour_ticks(max_hours),
            y_ticks: cost_ticks(max_cost),
            points,
            bars: bars.collect(),
            table: shown.iter().map(|found| row(found)).collect(),
            notes: notes
                .map(|missing| Shown::of(&format!("No time for the job: {missing}.")))
                .collect(),
        }
    }
}

fn row(found: &ComparedGpu) -> Row {
    let dash = || "-".to_owned();
    let rates = found
        .rate()
        .map(|(range, unit)| format!("{} {unit}", rounded_rate(range.likely)));
    Row {
        name: Shown::of(&found.name),
        gpu: Shown::of(&found.gpu),
        memory: match found.verdict.as_str() {
            "fits" => "fits",
            "tight" => "tight",
            "does_not_fit" => "does not fit",
            "host_does_not_fit" => "host memory does not fit",
            _ => "failed",
        },
        class: if found.fits { "" } else { "critical" },
        rate: rates.unwrap_or_else(dash),
        hours: found
            .hours
            .map_or_else(dash, |range| hours_words(range.likely)),
        cost: found
            .cost
            .map_or_else(dash, |range| cost_words(range.likely)),
        settings: found.settings_words().map(|words| Shown::of(&words)),
    }
}

fn share(value: f64, max: f64) -> f64 {
    hundredth((100.0 * value / max.max(f64::MIN_POSITIVE)).clamp(0.0, 100.0))
}

/// Round numbers from 0 to `max`.
fn ticks_to(max: f64) -> Vec<f64> {
    if !(max.is_finite() && max > 0.0) {
        return Vec::new();
    }
    let step = round_step(max, 5.0);
    (0..6)
        .map(|at| step * f64::from(at))
        .take_while(|value| *value < max)
        .collect()
}

fn hour_ticks(max: f64) -> Vec<TimeTick> {
    ticks_to(max)
        .into_iter()
        .map(|value| TimeTick {
            at: share(value, max),
            label: hours_words(value),
            class: if value > 0.0 { "" } else { "first" },
        })
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of 1000"
)]
fn cost_ticks(max: f64) -> Vec<Tick> {
    ticks_to(max)
        .into_iter()
        .map(|value| {
            let at = hundredth(100.0 - share(value, max));
            Tick {
                label: cost_words(value),
                y: (at * 10.0) as u64,
                at,
            }
        })
        .collect()
}
