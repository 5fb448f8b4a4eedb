//! A run in progress, as a notebook shows it below the cell: small pictures of memory over time.

use std::fmt::Write;

use brimful::live::{EventKind, LiveRun, PeakColumns, TimeRange};
use brimful::units::Bytes;
use serde::Serialize;

use crate::html::{card, harmless};
use crate::text::grouped;
use crate::text::run::duration;

const TEMPLATE: &str = include_str!("live.html");
/// Columns of a picture.
const N_COLUMNS: usize = 160;
/// Height of a picture, in units of its own.
const HEIGHT: u64 = 400;
/// GPUs that are shown.
const MAX_GPUS: usize = 8;

/// The HTML and one line of text; `None` until something was recorded.
///
/// Pictures are images: notebooks remove SVG elements from what is not trusted.
pub fn live(run: &LiveRun) -> Result<Option<(String, String)>, minijinja::Error> {
    let rows = rows(run);
    if rows.is_empty() {
        return Ok(None);
    }
    let shown = LiveCard {
        status: status(run),
        event: newest_event(run),
        rows,
    };
    let parts: Vec<String> = shown
        .rows
        .iter()
        .map(|row| format!("{} {}", row.name, row.words))
        .collect();
    let text = format!("brimful · {} · {}", shown.status, parts.join(" · "));
    Ok(Some((card(TEMPLATE, &shown)?, harmless(&text))))
}

#[derive(Debug, Serialize)]
struct LiveCard {
    status: String,
    rows: Vec<LiveRow>,
    event: Option<String>,
}

#[derive(Debug, Serialize)]
struct LiveRow {
    name: String,
    described: String,
    area: String,
    words: String,
}

fn status(run: &LiveRun) -> String {
    let mut parts = Vec::new();
    if let Some(attempt) = run.attempt().filter(|attempt| attempt.number > 1) {
        let changed = attempt.changed.join(", ");
        let colon = if changed.is_empty() { "" } else { ": " };
        parts.push(format!("attempt {}{colon}{changed}", attempt.number));
    }
    if let Some(progress) = run.progress() {
        let plural = if progress.steps == 1 { "" } else { "s" };
        parts.push(format!(
            "{} step{plural}",
            grouped(&progress.steps.to_string())
        ));
        if let Some(rate) = progress.steps_per_second {
            parts.push(format!("{rate:.2} steps/s"));
        }
    }
    parts.push(duration(run.elapsed_ms()));
    match (run.end(), run.forecast(TimeRange::TenMinutes)) {
        (Some(_), _) => parts.push("ended".to_owned()),
        (None, Some(forecast)) if forecast.left_ms < 1000 => {
            parts.push("host memory is full in less than a second at this rate".to_owned());
        }
        (None, Some(forecast)) => parts.push(format!(
            "host memory is full in {} at this rate",
            duration(forecast.left_ms)
        )),
        (None, None) => {}
    }
    parts.join(" · ")
}

/// The newest thing that a person should know, while it runs.
fn newest_event(run: &LiveRun) -> Option<String> {
    if run.end().is_some() {
        return None;
    }
    run.events()
        .rev()
        .take_while(|event| !matches!(event.kind, EventKind::AttemptStarted { .. }))
        .find_map(|event| match &event.kind {
            EventKind::Alarm { message, .. } => Some(message.clone()),
            EventKind::CudaOom { device } => Some(format!("GPU {device} ran out of memory")),
            _ => None,
        })
}

fn rows(run: &LiveRun) -> Vec<LiveRow> {
    let mut rows = Vec::new();
    if let Some(host) = run.host() {
        let in_use = host.limit.saturating_sub(host.headroom);
        rows.push(row("host", run.used_history(), in_use, host.limit));
    }
    for gpu in run.gpus().iter().take(MAX_GPUS) {
        if let Some(history) = run.gpu_history(gpu.index) {
            let name = format!("GPU {}", gpu.index);
            rows.push(row(&name, history, gpu.used, gpu.total));
        }
    }
    rows
}

fn row(name: &str, history: &PeakColumns, used: Bytes, limit: Bytes) -> LiveRow {
    let cells = history.cells(TimeRange::All, N_COLUMNS);
    let words = format!("{used} of {limit}");
    LiveRow {
        name: name.to_owned(),
        described: format!("{name} memory over time, now {words}"),
        area: area(&cells, limit),
        words,
    }
}

/// The area below the highest value of each column; its upper edge is the limit.
fn area(cells: &[Option<u64>], limit: Bytes) -> String {
    let y = |value: u64| {
        let scaled = u128::from(value.min(limit.get())) * u128::from(HEIGHT);
        let tall = u64::try_from(scaled / u128::from(limit.get().max(1))).unwrap_or(0);
        HEIGHT.saturating_sub(tall)
    };
    let mut area = String::new();
    let mut x = 0;
    // Equal columns are one step.
    for same in cells.chunk_by(|a, b| a.map(y) == b.map(y)) {
        let end = x + same.len();
        if let Some(top) = same[0].map(y) {
            let _ = write!(area, "M{x} {HEIGHT}V{top}H{end}V{HEIGHT}Z");
        }
        x = end;
    }
    area
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_has_gaps_where_nothing_is_known() {
        let cells = [Some(0), Some(50), None, Some(100), Some(400)];
        assert_eq!(
            area(&cells, Bytes(100)),
            "M0 400V400H1V400ZM1 400V200H2V400ZM3 400V0H5V400Z"
        );
    }

    #[test]
    fn nothing_is_shown_before_the_first_sample() {
        assert_eq!(live(&LiveRun::default()).expect("a page"), None);
    }
}
