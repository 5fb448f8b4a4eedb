//! The HTML that a notebook shows for `brimful.predict()`.

use std::fmt::Write;

use brimful::predict::{FitVerdict, Footprint, Phase};
use brimful::units::Bytes;
use serde::Serialize;

use crate::html::card;
use crate::json::Rehearsed;
use crate::text::{Page, rate, term_name, verdict_words};

const TEMPLATE: &str = include_str!("predict.html");
const BAR: f64 = 200.0;
const CURVE_WIDTH: f64 = 720.0;
const CURVE_HEIGHT: f64 = 120.0;

/// A self-contained fragment: inline styles and SVG, and the plain text for readers without either.
pub fn predict(
    rehearsed: &Rehearsed,
    footprints: &[Footprint],
) -> Result<String, minijinja::Error> {
    let Some(first) = footprints.first() else {
        let text = crate::text::predict(rehearsed, footprints, &Page::plain(80));
        return card("<pre>{{ text }}</pre>", &minijinja::context! { text });
    };
    let highest = first
        .curve
        .iter()
        .map(|point| point.reserved)
        .max()
        .unwrap_or_default();
    let phases: Vec<Phase> = first
        .phases
        .iter()
        .map(|peak| peak.phase)
        .filter(|phase| *phase != Phase::Setup)
        .collect();
    let mut heading = vec![format!("on {}", first.gpu), "at the peak".to_owned()];
    heading.extend(phases.iter().map(|phase| phase.name().to_owned()));
    let shown = PredictCard {
        title: format!(
            "{}: {} likely, {} safe",
            rehearsed.command.join(" "),
            first.device.likely,
            first.device.safe
        ),
        gpus: footprints
            .iter()
            .enumerate()
            .map(|(at, footprint)| Gpu {
                speed: rehearsed.speed(at).map(|speed| {
                    let (range, unit) = match speed.samples_per_second {
                        Some(samples) => (samples, "samples/s"),
                        None => (speed.steps_per_second, "steps/s"),
                    };
                    format!("{} to {} {unit}", rate(range.low), rate(range.high))
                }),
                ..gpu(footprint)
            })
            .collect(),
        highest: highest.to_string(),
        steps: first.steps,
        reserved_path: path(first, highest, |point| point.reserved),
        allocated_path: path(first, highest, |point| point.allocated),
        heading,
        rows: rows(first, &phases),
        caveats: first
            .caveats
            .iter()
            .map(|caveat| caveat.text.clone())
            .collect(),
        text: crate::text::predict(rehearsed, footprints, &Page::plain(80)),
    };
    card(TEMPLATE, &shown)
}

#[derive(Debug, Serialize)]
struct PredictCard {
    title: String,
    gpus: Vec<Gpu>,
    highest: String,
    steps: u32,
    reserved_path: String,
    allocated_path: String,
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
    caveats: Vec<String>,
    text: String,
}

#[derive(Debug, Serialize)]
struct Gpu {
    name: String,
    verdict: &'static str,
    color: &'static str,
    words: String,
    speed: Option<String>,
    likely_width: f64,
    safe_width: f64,
}

fn gpu(footprint: &Footprint) -> Gpu {
    let width =
        |bytes: Bytes| ((bytes.share_of(footprint.total) * BAR).min(BAR) * 10.0).round() / 10.0;
    let (verdict, words) = verdict_words(footprint);
    let color = match footprint.verdict {
        FitVerdict::Fits => "#2a8",
        FitVerdict::Tight => "#b70",
        FitVerdict::DoesNotFit => "#d33",
    };
    Gpu {
        name: footprint.gpu.clone(),
        verdict,
        color,
        words,
        speed: None,
        likely_width: width(footprint.device.likely),
        safe_width: width(footprint.device.safe),
    }
}

/// The area below one line of the curve.
fn path(
    footprint: &Footprint,
    highest: Bytes,
    of: fn(&brimful::predict::CurvePoint) -> Bytes,
) -> String {
    let count = footprint.curve.len().max(1) as f64;
    let mut out = format!("M0 {CURVE_HEIGHT}");
    for (at, point) in footprint.curve.iter().enumerate() {
        let height = CURVE_HEIGHT * (1.0 - of(point).share_of(highest));
        let (from, to) = (
            CURVE_WIDTH * at as f64 / count,
            CURVE_WIDTH * (at + 1) as f64 / count,
        );
        let _ = write!(out, "L{from:.1} {height:.1}L{to:.1} {height:.1}");
    }
    let _ = write!(out, "L{CURVE_WIDTH} {CURVE_HEIGHT}Z");
    out
}

fn rows(footprint: &Footprint, phases: &[Phase]) -> Vec<Vec<String>> {
    let shown = |bytes: Bytes| {
        if bytes == Bytes::ZERO {
            "-".to_owned()
        } else {
            bytes.to_string()
        }
    };
    let mut rows = Vec::new();
    for term in &footprint.terms {
        let by_phase = |phase: &Phase| {
            let found = term.by_phase.iter().find(|(of, _)| of == phase);
            found.map_or(Bytes::ZERO, |(_, bytes)| *bytes)
        };
        let mut row = vec![term_name(term.id).to_owned(), shown(term.likely)];
        row.extend(phases.iter().map(|phase| shown(by_phase(phase))));
        rows.push(row);
    }
    rows
}
