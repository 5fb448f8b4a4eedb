//! How full each memory was over time, with attempts, alarms and actions.

use std::fmt::Write;

use brimful::explain::Verdict;
use brimful::record::{Attempt, Curve, Extent, Measured, Outcome, Record, TimeAxis, curves};
use brimful::units::Bytes;
use brimful::watch::{Action, Urgency};
use serde::Serialize;

use crate::html::base64;
use crate::html::report::chart::{Scale, Tick, area, line};
use crate::html::report::markup::as_markup;
use crate::html::report::shown::Shown;
use crate::html::report::time::{TimeTick, exact, percent, ticks_from_start};
use crate::text::run::action;

/// Below this, a curve is a flat line at the bottom; it is in the table only.
const MIN_DRAWN: Bytes = Bytes::from_mib(1);
/// GPUs with a chart of their own; the table has all.
const MAX_GPU_ROWS: usize = 16;
/// The last part of a run, which can be zoomed into sample by sample.
const RECENT_MS: u64 = 600_000;
/// A run has at most 100 attempts.
const MAX_ATTEMPTS: usize = 100;
/// Marks of alarms closer than this share of the width are one mark.
const MARK_COLUMNS: u64 = 72;
const MAX_EVENTS: usize = 100;
const TABLE_COLUMNS: usize = 24;
/// Charts of fewer pixels have two labels.
const LOW_CHART: u32 = 100;

/// The view.
#[derive(Debug, Serialize)]
pub(super) struct HowFull {
    about: String,
    end_ms: u64,
    recent: Option<Recent>,
    n_columns: usize,
    attempts: Vec<Band>,
    marks: Vec<Mark>,
    rows: Vec<Row>,
    x_ticks: Vec<TimeTick>,
    ends: Vec<EndLineMark>,
    summary: Vec<Peak>,
    table_names: Vec<String>,
    table: Vec<TableLine>,
    events: Vec<EventRow>,
    n_events_left_out: usize,
    #[serde(serialize_with = "as_markup")]
    data: String,
    /// For the tiles above the views.
    #[serde(skip)]
    pub(super) curves: Vec<Curve>,
}

#[derive(Debug, Serialize)]
struct Recent {
    from_ms: u64,
    label: &'static str,
}

#[derive(Debug, Serialize)]
struct Band {
    number: u32,
    from_ms: u64,
    to_ms: u64,
    left: f64,
    width: f64,
    label: Shown,
    end: String,
    class: &'static str,
    described: Shown,
}

#[derive(Debug, Serialize)]
struct Mark {
    at_ms: u64,
    left: f64,
    class: &'static str,
    glyph: &'static str,
    count: usize,
    text: Shown,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    about: Shown,
    described: String,
    class: &'static str,
    height: u32,
    ticks: Vec<Tick>,
    high_area: String,
    low_area: Option<String>,
    line: String,
    total_line: Option<String>,
    limit_y: Option<u64>,
    #[serde(skip)]
    scale: Scale,
    #[serde(skip)]
    measured: Measured,
}

#[derive(Debug, Serialize)]
struct EndLineMark {
    at_ms: u64,
    left: f64,
}

#[derive(Debug, Serialize)]
struct Peak {
    name: String,
    lowest: String,
    highest: String,
    limit: String,
}

#[derive(Debug, Serialize)]
struct TableLine {
    when: String,
    values: Vec<String>,
}

#[derive(Debug, Serialize)]
struct EventRow {
    when: String,
    attempt: u32,
    kind: &'static str,
    text: Shown,
}

/// An alarm or an action on the time axis.
struct Event {
    at_ms: u64,
    attempt: u32,
    class: &'static str,
    glyph: &'static str,
    weight: u8,
    text: Shown,
}

impl HowFull {
    pub(super) fn of(
        record: &Record,
        axis: &TimeAxis,
        verdict: Option<&Verdict>,
        running: bool,
    ) -> HowFull {
        let end_ms = axis.end_ms();
        let n_gpus = |curves: &[Curve]| {
            let gpu = |curve: &&Curve| matches!(curve.measured, Measured::Gpu(_));
            curves.iter().filter(gpu).count()
        };
        let overview = curves(record, axis, (0, end_ms), TABLE_COLUMNS);
        // A page has a fixed size: more curves have fewer columns each.
        let is_many = n_gpus(&overview) > 3;
        let n_columns = if is_many { 360 } else { 720 };
        let drawn = curves(record, axis, (0, end_ms), n_columns);
        let rows = rows(record, &drawn, n_gpus(&drawn));
        let recent_from = end_ms.saturating_sub(RECENT_MS);
        let has_recent = end_ms > RECENT_MS * 2;
        let data = data(
            record,
            axis,
            &rows,
            is_many,
            has_recent.then_some(recent_from),
        );
        let events = events(record, axis);
        let listed: Vec<&Curve> = overview
            .iter()
            .filter(|curve| curve.measured != Measured::HostTotal)
            .take(8)
            .collect();
        let about = if rows.is_empty() {
            "No memory was sampled in this run.".to_owned()
        } else {
            "Each column shows the lowest and the highest value that was sampled in it.".to_owned()
        };
        HowFull {
            about,
            end_ms,
            recent: has_recent.then_some(Recent {
                from_ms: recent_from,
                label: "Last 10 min",
            }),
            n_columns,
            attempts: bands(record, axis, verdict, running),
            marks: marks(&events, end_ms),
            rows,
            x_ticks: ticks_from_start(end_ms),
            ends: ends(record, axis),
            summary: drawn.iter().filter_map(peak).collect(),
            table_names: listed.iter().map(|curve| name(curve.measured)).collect(),
            table: table(&listed, end_ms),
            n_events_left_out: events.len().saturating_sub(MAX_EVENTS),
            events: listed_events(&events),
            data,
            curves: drawn,
        }
    }
}

/// The name of a memory, as the rest of brimful calls it.
pub(super) fn name(measured: Measured) -> String {
    match measured {
        Measured::Host => "Host memory".into(),
        Measured::HostTotal => "Host memory, all processes".into(),
        Measured::Gpu(index) => format!("GPU {index}"),
        Measured::SharedMemory => "/dev/shm".into(),
    }
}

/// The color of a memory.
pub(super) fn class(measured: Measured) -> &'static str {
    match measured {
        Measured::Host => "host",
        Measured::HostTotal => "total",
        Measured::Gpu(_) => "gpu",
        Measured::SharedMemory => "shm",
    }
}

pub(super) fn highest(columns: &[Option<Extent>]) -> impl Iterator<Item = Option<Bytes>> {
    columns.iter().map(|cell| Some(cell.as_ref()?.highest))
}

fn lowest(columns: &[Option<Extent>]) -> impl Iterator<Item = Option<Bytes>> {
    columns.iter().map(|cell| Some(cell.as_ref()?.lowest))
}

fn rows(record: &Record, drawn: &[Curve], n_gpus: usize) -> Vec<Row> {
    let total = drawn
        .iter()
        .find(|curve| curve.measured == Measured::HostTotal);
    let mut rows = Vec::new();
    let mut n_gpu_rows = 0;
    for curve in drawn {
        let Some(peak) = curve.highest().filter(|peak| *peak >= MIN_DRAWN) else {
            continue;
        };
        let height = match curve.measured {
            Measured::HostTotal => continue,
            Measured::Host => 190,
            Measured::Gpu(_) => {
                n_gpu_rows += 1;
                if n_gpu_rows > MAX_GPU_ROWS {
                    continue;
                }
                if n_gpus > 4 { 56 } else { 130 }
            }
            Measured::SharedMemory => 64,
        };
        let beside = total.filter(|total| curve.measured == Measured::Host && differ(curve, total));
        let top = beside.and_then(Curve::highest).unwrap_or(peak).max(peak);
        let scale = match curve.measured {
            Measured::Host => Scale::to_limit(top, curve.limit),
            _ => Scale::to_highest(top, curve.limit),
        };
        let mut ticks = scale.ticks();
        if height < LOW_CHART {
            // Labels would overlap: the ground and the highest one remain.
            let n_ticks = ticks.len();
            ticks = ticks
                .into_iter()
                .enumerate()
                .filter(|(idx, _)| *idx == 0 || idx + 1 == n_ticks)
                .map(|(_, tick)| tick)
                .collect();
        }
        let has_band = curve
            .columns
            .iter()
            .flatten()
            .any(|cell| cell.lowest < cell.highest);
        let limit = curve
            .limit
            .map_or_else(String::new, |limit| format!(" of {limit}"));
        rows.push(Row {
            name: name(curve.measured),
            about: about(record, curve, beside.is_some()),
            described: format!("{} over time, peak {peak}{limit}", name(curve.measured)),
            class: class(curve.measured),
            height,
            ticks,
            high_area: area(highest(&curve.columns), &scale),
            low_area: has_band.then(|| area(lowest(&curve.columns), &scale)),
            line: line(highest(&curve.columns), &scale),
            total_line: beside.map(|total| line(highest(&total.columns), &scale)),
            limit_y: scale.limit.map(|limit| scale.y(limit)),
            scale,
            measured: curve.measured,
        });
    }
    rows
}

/// Whether other processes hold a visible part of the limit.
fn differ(host: &Curve, total: &Curve) -> bool {
    let limit = host.limit.unwrap_or_default();
    let pairs = host.columns.iter().zip(&total.columns);
    pairs
        .filter_map(|(host, total)| Some(((*host)?, (*total)?)))
        .any(|(host, total)| total.highest.saturating_sub(host.highest).share_of(limit) > 0.05)
}

fn about(record: &Record, curve: &Curve, has_total: bool) -> Shown {
    let limit = curve
        .limit
        .map_or_else(String::new, |limit| format!("{limit}"));
    let words = match curve.measured {
        Measured::Host => {
            let last = record.last_attempt();
            let by = last.and_then(|last| last.start.limit_set_by.as_deref());
            let mut words = format!("limit {limit}");
            if let Some(by) = by {
                let _ = write!(words, ", set by {by}");
            }
            if has_total {
                words.push_str(" · gray line: with all other processes that count against it");
            }
            words
        }
        _ if limit.is_empty() => String::new(),
        _ => format!("of {limit}"),
    };
    Shown::of(&words)
}

fn peak(curve: &Curve) -> Option<Peak> {
    let cells = || curve.columns.iter().flatten();
    Some(Peak {
        name: name(curve.measured),
        lowest: cells().map(|cell| cell.lowest).min()?.to_string(),
        highest: curve.highest()?.to_string(),
        limit: curve
            .limit
            .map_or_else(|| "unknown".into(), |limit| limit.to_string()),
    })
}

fn table(listed: &[&Curve], end_ms: u64) -> Vec<TableLine> {
    (0..TABLE_COLUMNS)
        .map(|column| TableLine {
            when: format!(
                "from {}",
                exact(end_ms / TABLE_COLUMNS as u64 * column as u64)
            ),
            values: listed
                .iter()
                .map(|curve| {
                    let cell = curve.columns.get(column).copied().flatten();
                    cell.map_or_else(|| "-".into(), |cell| cell.highest.to_string())
                })
                .collect(),
        })
        .collect()
}

/// How an attempt ended, in a word or two.
fn ending(attempt: &Attempt, verdict: Option<&Verdict>, running: bool) -> (String, &'static str) {
    let Some(end) = &attempt.end else {
        return if running {
            ("running".into(), "")
        } else {
            ("✕ not observed".into(), "died")
        };
    };
    match &end.outcome {
        Outcome::Finished => ("✓ finished".into(), "good"),
        Outcome::StoppedByUser { .. } => ("stopped".into(), ""),
        Outcome::StoppedByUs { .. } => ("stopped by brimful".into(), "action"),
        _ => {
            let cause = verdict.map(|verdict| verdict.cause.id());
            (
                format!("✕ {}", cause.unwrap_or("died").replace('_', " ")),
                "died",
            )
        }
    }
}

fn bands(record: &Record, axis: &TimeAxis, verdict: Option<&Verdict>, running: bool) -> Vec<Band> {
    let end_ms = axis.end_ms();
    let n_attempts = record.attempts.len();
    let spans = record.attempts.iter().zip(&axis.attempts).enumerate();
    spans
        .skip(n_attempts.saturating_sub(MAX_ATTEMPTS))
        .map(|(idx, (attempt, span))| {
            let changes: Vec<String> = attempt
                .start
                .changed
                .iter()
                .take(4)
                .map(|change| format!("{} {}", change.knob, change.to))
                .collect();
            let is_last = idx + 1 == n_attempts;
            let verdict = attempt.verdict.as_ref().or(verdict.filter(|_| is_last));
            let (end, class) = ending(attempt, verdict, is_last && running);
            let length = exact(span.end_ms - span.start_ms);
            let number = attempt.start.number;
            Band {
                number,
                from_ms: span.start_ms,
                to_ms: span.end_ms,
                left: percent(span.start_ms, end_ms),
                width: percent(span.end_ms - span.start_ms, end_ms),
                described: Shown::of(&format!(
                    "Attempt {number}, {length}: {end} {}",
                    changes.join(", ")
                )),
                label: Shown::of(&changes.join(", ")),
                end,
                class,
            }
        })
        .collect()
}

fn ends(record: &Record, axis: &TimeAxis) -> Vec<EndLineMark> {
    let end_ms = axis.end_ms();
    let pairs = record.attempts.iter().zip(&axis.attempts);
    pairs
        .filter(|(attempt, _)| ending(attempt, None, false).1 == "died")
        .map(|(_, span)| EndLineMark {
            at_ms: span.end_ms,
            left: percent(span.end_ms, end_ms),
        })
        .take(MAX_ATTEMPTS)
        .collect()
}

fn events(record: &Record, axis: &TimeAxis) -> Vec<Event> {
    let mut events = Vec::new();
    for (attempt, span) in record.attempts.iter().zip(&axis.attempts) {
        let at = |at_ms: u64| {
            span.start_ms
                .saturating_add(at_ms)
                .min(span.end_ms.max(span.start_ms))
        };
        let number = attempt.start.number;
        for alarm in &attempt.alarms {
            let (class, glyph, weight) = match alarm.urgency {
                Urgency::Note => ("note", "●", 0),
                Urgency::Warning => ("warning", "◆", 1),
                Urgency::Critical => ("critical", "▲", 2),
            };
            events.push(Event {
                at_ms: at(alarm.at_ms),
                attempt: number,
                class,
                glyph,
                weight,
                text: Shown::of(&alarm.message),
            });
        }
        for done in &attempt.actions {
            if done.action != Action::KeepWatching {
                events.push(Event {
                    at_ms: at(done.at_ms),
                    attempt: number,
                    class: "action",
                    glyph: "■",
                    weight: 3,
                    text: Shown::of(action(done).trim_start_matches("brimful: ")),
                });
            }
        }
    }
    events.sort_by_key(|event| event.at_ms);
    events
}

/// One mark for all events that are close to each other: the most urgent, and their number.
fn marks(events: &[Event], end_ms: u64) -> Vec<Mark> {
    let place =
        |at_ms: u64| u128::from(at_ms) * u128::from(MARK_COLUMNS) / u128::from(end_ms.max(1));
    let mut marks: Vec<(u128, u8, Mark)> = Vec::new();
    for event in events {
        let at = place(event.at_ms);
        let mark = || Mark {
            at_ms: event.at_ms,
            left: percent(event.at_ms, end_ms),
            class: event.class,
            glyph: event.glyph,
            count: 1,
            text: event.text.clone(),
        };
        match marks.last_mut() {
            Some((last, weight, found)) if *last == at => {
                let count = found.count + 1;
                if event.weight >= *weight {
                    (*weight, *found) = (event.weight, mark());
                }
                found.count = count;
            }
            _ => marks.push((at, event.weight, mark())),
        }
    }
    marks.into_iter().map(|(_, _, mark)| mark).collect()
}

/// The first and the last ones.
fn listed_events(events: &[Event]) -> Vec<EventRow> {
    let half = MAX_EVENTS / 2;
    let is_listed = |idx: usize| idx < half || idx + half >= events.len();
    let listed = events.iter().enumerate().filter(|(idx, _)| is_listed(*idx));
    listed
        .map(|(_, event)| EventRow {
            when: exact(event.at_ms),
            attempt: event.attempt,
            kind: event.class,
            text: event.text.clone(),
        })
        .collect()
}

/// What the script needs to zoom: more columns than are drawn, and the last minutes sample by sample. Numbers only.
fn data(
    record: &Record,
    axis: &TimeAxis,
    rows: &[Row],
    is_many: bool,
    recent_from: Option<u64>,
) -> String {
    let end_ms = axis.end_ms();
    let (n_fine, n_recent) = if is_many { (1024, 1500) } else { (4096, 3000) };
    let fine = curves(record, axis, (0, end_ms), n_fine);
    let recent = recent_from.map(|from| curves(record, axis, (from, end_ms), n_recent));
    let shares = |curves: &[Curve], measured: Measured, top: u64, low: bool| {
        let curve = curves.iter().find(|curve| curve.measured == measured);
        let columns = curve.map_or(&[][..], |curve| curve.columns.as_slice());
        let of = |cell: &Option<Extent>| {
            let cell = cell.as_ref()?;
            Some(if low { cell.lowest } else { cell.highest }.get())
        };
        base64::shares(columns.iter().map(of), top)
    };
    let mut json = format!(
        "{{\"end\":{end_ms},\"recentFrom\":{},\"rows\":[",
        recent_from.unwrap_or(end_ms)
    );
    for (idx, row) in rows.iter().enumerate() {
        let top = row.scale.top();
        let comma = if idx == 0 { "" } else { "," };
        let _ = write!(json, "{comma}{{\"name\":\"{}\",\"top\":{top}", row.name);
        let _ = write!(
            json,
            ",\"high\":\"{}\"",
            shares(&fine, row.measured, top, false)
        );
        if row.low_area.is_some() {
            let _ = write!(
                json,
                ",\"low\":\"{}\"",
                shares(&fine, row.measured, top, true)
            );
        }
        if row.total_line.is_some() {
            let _ = write!(
                json,
                ",\"total\":\"{}\"",
                shares(&fine, Measured::HostTotal, top, false)
            );
        }
        if let Some(recent) = &recent {
            let _ = write!(
                json,
                ",\"recent\":\"{}\"",
                shares(recent, row.measured, top, false)
            );
        }
        json.push('}');
    }
    json.push_str("]}");
    json
}
