//! A plan: memory against speed.

use std::collections::BTreeMap;

use brimful::units::Bytes;
use serde::Serialize;

use crate::html::report::chart::{Scale, Tick, hundredth, round_step};
use crate::html::report::page::{Frame, Renderer, Tile};
use crate::html::report::shown::Shown;
use crate::html::report::time::{TimeTick, percent};
use crate::json::{PlanDocument, PlannedBrim, PlannedThroughput, SettingValue};
use crate::text::capitalized;

/// As many as a plan has; a document may come from anybody.
const MAX_POINTS: usize = 200;
const MAX_RUNGS: usize = 9;
const MAX_REASONS: usize = 24;
const MAX_SETTINGS: usize = 8;
const NUMBERS: [&str; MAX_RUNGS] = ["①", "②", "③", "④", "⑤", "⑥", "⑦", "⑧", "⑨"];

/// The view.
#[derive(Debug, Serialize)]
struct MemoryAgainstSpeed {
    about: Shown,
    described: String,
    axis_name: Shown,
    points: Vec<Point>,
    labels: Vec<PointLabel>,
    y_ticks: Vec<Tick>,
    x_ticks: Vec<TimeTick>,
    limit_x: Option<f64>,
    limit_at: f64,
    limit_label: Option<String>,
    brims: Vec<BrimBar>,
    reasons: Vec<Shown>,
    table: Vec<PointRow>,
}

#[derive(Debug, Serialize)]
struct Point {
    left: f64,
    top: f64,
    class: &'static str,
    glyph: &'static str,
    text: Shown,
}

#[derive(Debug, Serialize)]
struct PointLabel {
    left: f64,
    top: f64,
    text: Shown,
}

#[derive(Debug, Serialize)]
struct BrimBar {
    name: Shown,
    percent: f64,
    color: &'static str,
    words: String,
}

#[derive(Debug, Serialize)]
struct PointRow {
    settings: Shown,
    bytes: String,
    rate: String,
    result: &'static str,
    class: &'static str,
}

/// Settings as one point of the chart.
struct PlotPoint<'a> {
    settings: &'a BTreeMap<String, SettingValue>,
    brims: &'a [PlannedBrim],
    rate: Option<f64>,
    role: Role,
}

/// What settings are in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Chosen,
    /// From 0.
    Rung(usize),
    Fits,
    Refused,
}

impl Role {
    fn shown(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Role::Chosen => ("chosen", "★", "planned"),
            Role::Rung(at) => ("rung", NUMBERS.get(at).copied().unwrap_or("○"), "rung"),
            Role::Fits => ("fits", "●", "fits"),
            Role::Refused => ("refused", "×", "does not fit"),
        }
    }
}

/// The page of a plan.
pub fn plan_report(document: &PlanDocument) -> Result<String, minijinja::Error> {
    let mut renderer = Renderer::new();
    let view = MemoryAgainstSpeed::of(document);
    renderer.add(include_str!("memory_against_speed.html"), &view)?;
    let headline = if document.fits {
        match &document.throughput {
            Some(rate) => format!(
                "{} fits: {}, {} samples/s",
                document.job,
                words(&document.settings),
                rounded(rate.samples_per_second)
            ),
            None => format!("{} fits: {}", document.job, words(&document.settings)),
        }
    } else {
        format!("Nothing fits: {} on {}", document.job, document.machine)
    };
    let tiles = document.brims.iter().take(6).map(|brim| {
        let name = format!("{}, safe", capitalized(memory_name(&brim.name)));
        Tile::of_memory(
            &name,
            Bytes(brim.safe_bytes),
            Some(Bytes(brim.limit_bytes)),
            color(brim),
        )
    });
    let mut facts = vec![Shown::of(&format!("on {}", document.machine))];
    facts.extend(
        document
            .effective_batch
            .map(|batch| Shown::of(&format!("effective batch {batch}"))),
    );
    facts.extend(
        document
            .mode
            .iter()
            .map(|mode| Shown::of(&format!("mode {mode}"))),
    );
    renderer.page(&Frame {
        subject: "plan",
        headline: Shown::of(&headline),
        state: None,
        command: Some(Shown::command(&document.command)),
        facts,
        tiles: tiles.collect(),
        footer: Shown::of(&format!(
            "Written by brimful {}. The page loads nothing from the network.",
            env!("CARGO_PKG_VERSION")
        )),
    })
}

impl MemoryAgainstSpeed {
    fn of(document: &PlanDocument) -> MemoryAgainstSpeed {
        let placed = placed(document);
        let axis = axis(document, &placed);
        let known: Vec<(&PlotPoint<'_>, u64, f64)> = placed
            .iter()
            .filter_map(|point| {
                let brim = point.brims.iter().find(|brim| brim.name == axis.name)?;
                Some((point, brim.safe_bytes, point.rate?))
            })
            .collect();
        let highest = known.iter().map(|(_, bytes, _)| *bytes).max().unwrap_or(0);
        let scale = Scale::to_limit(Bytes(highest), Some(Bytes(axis.limit_bytes)));
        let fastest = known.iter().map(|(_, _, rate)| *rate).fold(0.0, f64::max);
        let left = |bytes: u64| (100.0 - scale.at(Bytes(bytes))).clamp(0.0, 100.0);
        let top = |rate: f64| 100.0 - rate / (fastest * 1.08).max(f64::MIN_POSITIVE) * 100.0;
        let points = known.iter().map(|(point, bytes, rate)| {
            let (class, glyph, role) = point.role.shown();
            Point {
                left: hundredth(left(*bytes)),
                top: hundredth(top(*rate)),
                class,
                glyph,
                text: Shown::of(&format!(
                    "{role}: {}; {} safe, {} samples/s",
                    words(point.settings),
                    Bytes(*bytes),
                    rounded(*rate)
                )),
            }
        });
        let chosen = known
            .iter()
            .filter(|(point, _, _)| point.role == Role::Chosen);
        let labels = chosen.map(|(point, bytes, rate)| PointLabel {
            left: hundredth((left(*bytes) + 1.6).min(70.0)),
            top: hundredth((top(*rate) - 2.5).max(0.0)),
            text: Shown::of(&differing(point.settings, &document.wanted.settings)),
        });
        let (points, labels): (Vec<Point>, Vec<PointLabel>) = (points.collect(), labels.collect());
        let limit = Bytes(axis.limit_bytes);
        MemoryAgainstSpeed {
            about: Shown::of(&format!(
                "Higher is faster, further right needs more {}. Right of the line, settings do not fit.",
                memory_name(&axis.name)
            )),
            described: format!(
                "{} settings by memory and speed; the table has the same values",
                points.len()
            ),
            axis_name: Shown::of(&capitalized(memory_name(&axis.name))),
            y_ticks: rate_ticks(fastest),
            x_ticks: byte_ticks(&scale),
            limit_x: scale.limit.map(|limit| hundredth(left(limit.get()) * 10.0)),
            limit_at: hundredth(left(limit.get())),
            limit_label: scale.limit.map(|limit| format!("limit {limit}")),
            brims: document.brims.iter().take(8).map(bar).collect(),
            reasons: document
                .reasons
                .iter()
                .take(MAX_REASONS)
                .map(|reason| Shown::of(&reason.text))
                .collect(),
            table: placed.iter().map(|point| row(point, &axis.name)).collect(),
            points,
            labels,
        }
    }
}

/// Everything that can be drawn: the plan, its rungs, and what it was compared with.
fn placed(document: &PlanDocument) -> Vec<PlotPoint<'_>> {
    let rate = |found: &Option<PlannedThroughput>| {
        let rate = found.as_ref()?.samples_per_second;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    };
    let mut placed = Vec::new();
    for candidate in document.candidates.iter().take(MAX_POINTS) {
        placed.push(PlotPoint {
            settings: &candidate.settings,
            brims: &candidate.brims,
            rate: rate(&candidate.throughput),
            role: if candidate.fits {
                Role::Fits
            } else {
                Role::Refused
            },
        });
    }
    for (at, rung) in document.rungs.iter().enumerate().take(MAX_RUNGS) {
        placed.retain(|point| point.settings != &rung.settings);
        placed.push(PlotPoint {
            settings: &rung.settings,
            brims: &rung.brims,
            rate: rate(&rung.throughput),
            role: Role::Rung(at),
        });
    }
    if document.fits {
        placed.retain(|point| point.settings != &document.settings);
        placed.push(PlotPoint {
            settings: &document.settings,
            brims: &document.brims,
            rate: rate(&document.throughput),
            role: Role::Chosen,
        });
    }
    placed
}

/// The limit that most settings miss; the fullest one if none misses any.
fn axis(document: &PlanDocument, placed: &[PlotPoint<'_>]) -> PlannedBrim {
    let missed = |name: &str| {
        let misses = placed
            .iter()
            .flat_map(|point| point.brims)
            .filter(|brim| brim.name == name && brim.safe_bytes > brim.limit_bytes);
        misses.count()
    };
    let fullness = |brim: &PlannedBrim| Bytes(brim.safe_bytes).share_of(Bytes(brim.limit_bytes));
    let best = document.brims.iter().max_by(|a, b| {
        let by_misses = missed(&a.name).cmp(&missed(&b.name));
        by_misses.then(fullness(a).total_cmp(&fullness(b)))
    });
    best.cloned().unwrap_or(PlannedBrim {
        name: "host".into(),
        limit_bytes: 0,
        likely_bytes: 0,
        safe_bytes: 0,
    })
}

fn row(point: &PlotPoint<'_>, axis: &str) -> PointRow {
    let (_, _, result) = point.role.shown();
    let brim = point.brims.iter().find(|brim| brim.name == axis);
    PointRow {
        settings: Shown::of(&words(point.settings)),
        bytes: brim.map_or_else(|| "-".into(), |brim| Bytes(brim.safe_bytes).to_string()),
        rate: point.rate.map_or_else(|| "-".into(), rounded),
        result,
        class: if point.role == Role::Refused {
            "critical"
        } else {
            ""
        },
    }
}

fn bar(brim: &PlannedBrim) -> BrimBar {
    BrimBar {
        name: Shown::of(memory_name(&brim.name)),
        percent: percent(brim.safe_bytes, brim.limit_bytes),
        color: color(brim),
        words: format!(
            "{} likely, {} safe, of {}",
            Bytes(brim.likely_bytes),
            Bytes(brim.safe_bytes),
            Bytes(brim.limit_bytes)
        ),
    }
}

fn color(brim: &PlannedBrim) -> &'static str {
    match brim.name.as_str() {
        _ if brim.safe_bytes > brim.limit_bytes => "end",
        "host" => "host",
        "shm" => "shm",
        _ => "gpu",
    }
}

fn memory_name(name: &str) -> &str {
    match name {
        "host" => "host memory",
        "shm" => "/dev/shm",
        "gpu" => "GPU memory",
        other => other,
    }
}

/// `micro_batch 32, workers 4`.
fn words(settings: &BTreeMap<String, SettingValue>) -> String {
    let parts = settings.iter().take(MAX_SETTINGS);
    let parts: Vec<String> = parts
        .map(|(knob, value)| format!("{knob} {}", value.words()))
        .collect();
    parts.join(", ")
}

/// What differs from the preferred settings; everything if nothing does.
fn differing(
    settings: &BTreeMap<String, SettingValue>,
    wanted: &BTreeMap<String, SettingValue>,
) -> String {
    let own: BTreeMap<String, SettingValue> = settings
        .iter()
        .filter(|(knob, value)| wanted.get(*knob) != Some(value))
        .map(|(knob, value)| (knob.clone(), value.clone()))
        .collect();
    if own.is_empty() {
        "as preferred".to_owned()
    } else {
        words(&own)
    }
}

fn rounded(rate: f64) -> String {
    if rate < 10.0 {
        format!("{rate:.2}")
    } else {
        format!("{rate:.0}")
    }
}

/// Round rates.
fn rate_ticks(fastest: f64) -> Vec<Tick> {
    if !(fastest.is_finite() && fastest > 0.0) {
        return Vec::new();
    }
    let step = round_step(fastest, 4.0);
    (0_u32..=4)
        .map(|idx| f64::from(idx) * step)
        .filter(|rate| *rate <= fastest * 1.08)
        .map(|rate| {
            let at = 100.0 - rate / (fastest * 1.08) * 100.0;
            let unit = if rate + step > fastest * 1.08 {
                "/s"
            } else {
                ""
            };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 0 and 1000"
            )]
            let y = (at * 10.0).round().clamp(0.0, 1000.0) as u64;
            Tick {
                label: format!("{}{unit}", (rate * 100.0).round() / 100.0),
                y,
                at: hundredth(at),
            }
        })
        .collect()
}

/// The ticks of a scale of bytes, lying.
fn byte_ticks(scale: &Scale) -> Vec<TimeTick> {
    // Per mille of the width that the label of the limit takes on a narrow screen.
    const LABEL: u64 = 180;
    let limit = scale.limit.map(|limit| scale.y(limit));
    let is_apart =
        |tick: &Tick| limit.is_none_or(|limit| tick.y == limit || tick.y.abs_diff(limit) > LABEL);
    scale
        .ticks()
        .into_iter()
        .filter(is_apart)
        .map(|tick| {
            let at = hundredth(100.0 - tick.at);
            let class = match at {
                at if at < 3.0 => "first",
                at if at > 94.0 => "last",
                _ => "",
            };
            TimeTick {
                label: tick.label,
                at,
                class,
            }
        })
        .collect()
}
