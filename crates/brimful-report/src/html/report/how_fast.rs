//! How fast a run is on each GPU model, and what its time consists of.

use serde::Serialize;

use crate::html::report::shown::Shown;
use crate::json::{PredictDocument, PredictedSpeed, StepSeconds};
use crate::text::{rate, seconds_words};

const MAX_GPUS: usize = 20;
const MAX_NOTES: usize = 8;
/// Width of the widest bar.
const WIDTH: f64 = 1000.0;

/// Kinds of work, each with its color.
const PARTS: [(&str, &str); 6] = [
    ("matrix products", "optimizer"),
    ("convolutions", "gradients"),
    ("attention", "weights"),
    ("memory-bound operators", "activations"),
    ("optimizer", "workspaces"),
    ("gaps between kernels", "rest"),
];

/// The view.
#[derive(Debug, Serialize)]
pub(super) struct HowFast {
    gpus: Vec<GpuTime>,
    legend: Vec<LegendItem>,
    notes: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct GpuTime {
    name: Shown,
    described: Shown,
    parts: Vec<BarPart>,
    rate: String,
    words: String,
    range: String,
    epoch: String,
    step: String,
}

#[derive(Debug, Serialize)]
struct BarPart {
    x: f64,
    width: f64,
    color: &'static str,
}

#[derive(Debug, Serialize)]
struct LegendItem {
    name: &'static str,
    color: &'static str,
}

impl HowFast {
    /// Nothing where no speed is known.
    pub(super) fn of(document: &PredictDocument) -> Option<HowFast> {
        let known: Vec<(&str, &PredictedSpeed)> = document
            .gpus
            .iter()
            .filter_map(|gpu| Some((gpu.name.as_str(), gpu.speed.as_ref()?)))
            .take(MAX_GPUS)
            .collect();
        let longest = known
            .iter()
            .map(|(_, speed)| total(&speed.seconds_by_part))
            .fold(0.0, f64::max);
        if known.is_empty() || !(longest.is_finite() && longest > 0.0) {
            return None;
        }
        let used = |at: usize| {
            let mut speeds = known.iter();
            speeds.any(|(_, speed)| parts(&speed.seconds_by_part)[at] > 0.0)
        };
        let mut notes: Vec<String> = Vec::new();
        for note in known.iter().flat_map(|(_, speed)| &speed.notes) {
            let sentence = format!("Note: {note}.");
            if !notes.contains(&sentence) && notes.len() < MAX_NOTES {
                notes.push(sentence);
            }
        }
        Some(HowFast {
            gpus: known
                .iter()
                .map(|(name, speed)| gpu(name, speed, longest))
                .collect(),
            legend: PARTS
                .iter()
                .enumerate()
                .filter(|(at, _)| used(*at))
                .map(|(_, (name, color))| LegendItem { name, color })
                .collect(),
            notes: notes.iter().map(|note| Shown::of(note)).collect(),
        })
    }
}

fn parts(seconds: &StepSeconds) -> [f64; 6] {
    let known = |value: f64| {
        if value.is_finite() {
            value.max(0.0)
        } else {
            0.0
        }
    };
    [
        seconds.matmul,
        seconds.convolution,
        seconds.attention,
        seconds.memory_bound,
        seconds.optimizer,
        seconds.launches,
    ]
    .map(known)
}

fn total(seconds: &StepSeconds) -> f64 {
    parts(seconds).iter().sum()
}

fn gpu(name: &str, speed: &PredictedSpeed, longest: f64) -> GpuTime {
    let mut x = 0.0;
    let mut bars = Vec::new();
    for (seconds, (_, color)) in parts(&speed.seconds_by_part).iter().zip(PARTS) {
        let width = tenth(seconds / longest * WIDTH);
        if width > 0.0 {
            bars.push(BarPart { x, width, color });
            x = tenth(x + width);
        }
    }
    let (range, unit) = match speed.samples_per_second {
        Some(samples) => (samples, "samples/s"),
        None => (speed.steps_per_second, "steps/s"),
    };
    let shown = format!("{} {unit}", rate(range.likely));
    let between = format!("{} to {}", rate(range.low), rate(range.high));
    let epoch = speed.epoch_seconds.map(|range| seconds_words(range.likely));
    GpuTime {
        name: Shown::of(name),
        described: Shown::of(&format!("{name}: {shown}, {between}")),
        parts: bars,
        words: match &epoch {
            Some(epoch) => format!("{between}; one epoch {epoch}"),
            None => between.clone(),
        },
        rate: shown,
        range: between,
        epoch: epoch.unwrap_or_else(|| "-".to_owned()),
        step: format!("{} ms", rate(total(&speed.seconds_by_part) * 1000.0)),
    }
}

fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
