//! Several runs side by side.

use std::collections::{BTreeMap, BTreeSet};

use brimful::record::Record;
use brimful::units::Bytes;
use serde::Serialize;

use crate::html::report::chart::{Scale, area, line};
use crate::html::report::page::{Frame, Renderer};
use crate::html::report::shown::Shown;
use crate::html::report::time::exact;
use crate::json::RunSummary;

/// Runs of one report.
const MAX_RUNS: usize = 60;
const MAX_DIFFERENCES: usize = 6;

/// What a comparison needs of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunOverview {
    pub summary: RunSummary,
    /// The settings of the last attempt, one value per knob.
    pub settings: BTreeMap<String, String>,
    pub steps_per_second: Option<f64>,
}

impl RunOverview {
    pub fn of(record: &Record, running: bool) -> RunOverview {
        let settings = record
            .last_attempt()
            .and_then(|last| last.start.settings.as_ref());
        let settings = settings.map(|settings| {
            let values = settings.0.iter();
            values
                .map(|(knob, value)| (knob.clone(), value.to_string()))
                .collect()
        });
        RunOverview {
            summary: RunSummary::of(record, running),
            settings: settings.unwrap_or_default(),
            steps_per_second: steps_per_second(record),
        }
    }
}

/// Optimizer steps of the last attempt against the time between the first and the last of them.
fn steps_per_second(record: &Record) -> Option<f64> {
    let samples = &record.last_attempt()?.samples;
    let mut counted = samples.iter().filter_map(|sample| {
        let steps = sample.gauges.iter().map(|gauge| gauge.steps).max()?;
        (steps > 0).then_some((sample.at_ms, steps))
    });
    let (first_ms, first) = counted.next()?;
    let (last_ms, last) = counted.next_back()?;
    let seconds = last_ms.checked_sub(first_ms)? as f64 / 1000.0;
    let steps = last.checked_sub(first)? as f64;
    (seconds >= 1.0 && steps >= 1.0).then_some(steps / seconds)
}

/// The view.
#[derive(Debug, Serialize)]
struct SideBySide {
    runs: Vec<RunRow>,
    n_left_out: usize,
}

#[derive(Debug, Serialize)]
struct RunRow {
    id: Shown,
    differs: Vec<Shown>,
    described: String,
    n_columns: usize,
    area: String,
    line: String,
    limit_y: Option<u64>,
    peak: String,
    duration: String,
    steps_per_second: String,
    end: Shown,
    class: &'static str,
}

/// The page of several runs.
pub fn runs_report(runs: &[RunOverview]) -> Result<String, minijinja::Error> {
    let shown = &runs[..runs.len().min(MAX_RUNS)];
    let differences = differences(shown);
    let rows: Vec<RunRow> = shown
        .iter()
        .zip(differences)
        .map(|(run, differs)| row(run, differs))
        .collect();
    let finished = |run: &&RunOverview| run.summary.state == "finished";
    let n_finished = shown.iter().filter(finished).count();
    let headline = match n_finished {
        0 => format!("None of {} runs finished", shown.len()),
        n if n == shown.len() => format!("All {n} runs finished"),
        n => format!("{n} of {} runs finished", shown.len()),
    };
    let mut renderer = Renderer::new();
    renderer.add(
        include_str!("side_by_side.html"),
        &SideBySide {
            runs: rows,
            n_left_out: runs.len() - shown.len(),
        },
    )?;
    renderer.page(&Frame {
        subject: "report of several runs",
        headline: Shown::of(&headline),
        footer: Shown::of(&format!(
            "Written by brimful {} from run records. The page loads nothing from the network.",
            env!("CARGO_PKG_VERSION")
        )),
        ..Frame::default()
    })
}

fn row(run: &RunOverview, differs: Vec<Shown>) -> RunRow {
    let summary = &run.summary;
    let values: Vec<Option<Bytes>> = summary
        .host_used_sparkline
        .iter()
        .map(|value| value.map(Bytes))
        .collect();
    let limit = summary.host_limit_bytes.map(Bytes);
    let peak = summary.peak_host_used_bytes.map(Bytes);
    let scale = Scale::to_limit(peak.unwrap_or_default(), limit);
    let has_values = values.iter().any(Option::is_some);
    let of = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    let peak = peak.map_or_else(|| "-".into(), |peak| format!("{peak}{of}"));
    let (end, class) = match (summary.state.as_str(), &summary.cause) {
        ("finished", _) => ("✓ finished".to_owned(), "good"),
        ("running", _) => ("running".to_owned(), ""),
        ("stopped_by_user", _) => ("stopped by the user".to_owned(), ""),
        (_, Some(cause)) => (format!("✕ {}", cause.replace('_', " ")), "died"),
        (state, None) => (format!("✕ {}", state.replace('_', " ")), "died"),
    };
    RunRow {
        id: Shown::of(&summary.id),
        differs,
        described: format!("Host memory over the run, peak {peak}"),
        n_columns: values.len().max(1),
        area: area(values.iter().copied(), &scale),
        line: if has_values {
            line(values, &scale)
        } else {
            String::new()
        },
        limit_y: scale.limit.map(|limit| scale.y(limit)),
        peak,
        duration: exact(summary.duration_ms),
        steps_per_second: run.steps_per_second.map_or_else(
            || "-".into(),
            |rate| {
                if rate < 10.0 {
                    format!("{rate:.2}")
                } else {
                    format!("{rate:.0}")
                }
            },
        ),
        end: Shown::of(&end),
        class,
    }
}

/// What each run has that not all of them have: settings, else words of the command.
fn differences(runs: &[RunOverview]) -> Vec<Vec<Shown>> {
    let with_settings = runs.iter().all(|run| !run.settings.is_empty());
    let parts: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            if with_settings {
                let settings = run.settings.iter();
                settings
                    .map(|(knob, value)| format!("{knob} {value}"))
                    .collect()
            } else {
                options(&run.summary.command)
            }
        })
        .collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for of_run in &parts {
        for part in of_run.iter().map(String::as_str).collect::<BTreeSet<_>>() {
            *counts.entry(part).or_default() += 1;
        }
    }
    parts
        .iter()
        .map(|of_run| {
            let own = of_run
                .iter()
                .filter(|part| counts.get(part.as_str()) != Some(&runs.len()));
            own.take(MAX_DIFFERENCES)
                .map(|part| Shown::of(part))
                .collect()
        })
        .collect()
}

/// Options of a command with their values: `--workers 4` is one difference.
fn options(command: &[String]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in command {
        match found.last_mut() {
            Some(option)
                if option.starts_with('-')
                    && !option.contains([' ', '='])
                    && !word.starts_with('-') =>
            {
                option.push(' ');
                option.push_str(word);
            }
            _ => found.push(word.clone()),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_keep_their_values() {
        let words = ["python", "t.py", "--workers", "4", "--fast", "--lr=1"].map(str::to_owned);
        assert_eq!(
            options(&words),
            ["python", "t.py", "--workers 4", "--fast", "--lr=1"]
        );
    }
}
