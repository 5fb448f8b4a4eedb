//! The report of one run.

use brimful::explain::Verdict;
use brimful::record::{Curve, Measured, Outcome, Record, TimeAxis};
use brimful::units::Bytes;

use crate::html::report::fragmentation::Fragmentation;
use crate::html::report::how_full::HowFull;
use crate::html::report::page::{Frame, Renderer, StateChip, Tile};
use crate::html::report::shown::Shown;
use crate::html::report::time::{date, exact};
use crate::html::report::why_it_died::WhyItDied;
use crate::json::ReplayDocument;
use crate::text::capitalized;
use crate::text::run::{outcome, signal_name};

/// Less is not worth a tile.
const MIN_SHOWN: Bytes = Bytes::from_mib(1);

/// A run, and why it ended.
#[derive(Clone, Copy, Debug)]
pub struct RunReport<'a> {
    pub record: &'a Record,
    /// Why the last attempt ended; nothing while it runs.
    pub verdict: Option<&'a Verdict>,
    /// Whether brimful still watches it.
    pub running: bool,
    /// A replay of the snapshot that PyTorch's allocator left at its failure.
    pub snapshot: Option<&'a ReplayDocument>,
}

/// How a run ended, for a headline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnding {
    Running,
    Finished,
    StoppedByUser,
    Died,
}

impl RunReport<'_> {
    fn ending(&self) -> RunEnding {
        let end = self
            .record
            .last_attempt()
            .and_then(|last| last.end.as_ref());
        match end.map(|end| &end.outcome) {
            None if self.running => RunEnding::Running,
            Some(Outcome::Finished) => RunEnding::Finished,
            Some(Outcome::StoppedByUser { .. }) => RunEnding::StoppedByUser,
            Some(_) | None => RunEnding::Died,
        }
    }
}

/// The page of one run.
pub fn run_report(report: &RunReport<'_>) -> Result<String, minijinja::Error> {
    let axis = TimeAxis::of(report.record);
    let full = HowFull::of(report.record, &axis, report.verdict, report.running);
    let mut renderer = Renderer::new();
    let ending = report.ending();
    if let Some(verdict) = report.verdict
        && ending == RunEnding::Died
    {
        let why = WhyItDied::of(report.record, &axis, verdict);
        renderer.add(include_str!("why_it_died.html"), &why)?;
    }
    if let Some(snapshot) = report.snapshot {
        let view = Fragmentation::of(snapshot);
        renderer.add(include_str!("fragmentation.html"), &view)?;
    }
    renderer.add(include_str!("how_full.html"), &full)?;
    renderer.page(&frame(report, &axis, &full.curves, ending))
}

fn frame(report: &RunReport<'_>, axis: &TimeAxis, curves: &[Curve], ending: RunEnding) -> Frame {
    let run = &report.record.run;
    let lasted = exact(axis.end_ms());
    let host = curves.iter().find(|curve| curve.measured == Measured::Host);
    let peak = host.and_then(Curve::highest);
    let headline = match (ending, report.verdict) {
        (RunEnding::Died, Some(verdict)) => capitalized(&verdict.summary),
        (RunEnding::Died, None) => "The run died".to_owned(),
        (RunEnding::Running, _) => with_peak("The run is in progress", peak, host),
        (RunEnding::Finished, _) => with_peak("The run finished", peak, host),
        (RunEnding::StoppedByUser, _) => with_peak("The run was stopped by the user", peak, host),
    };
    let (class, state) = match ending {
        RunEnding::Died => ("bad", format!("✕ died after {lasted}")),
        RunEnding::Finished => ("good", format!("✓ finished after {lasted}")),
        RunEnding::StoppedByUser => ("", format!("stopped after {lasted}")),
        RunEnding::Running => ("", format!("running for {lasted}")),
    };
    let mut facts = vec![Shown::of(&format!("run {}", run.id))];
    if !run.host_name.is_empty() {
        facts.push(Shown::of(&format!("on {}", run.host_name)));
    }
    facts.extend(date(run.started_at_unix_ms).map(|date| Shown::of(&date)));
    facts.extend(exit_words(report.record).map(|words| Shown::of(&words)));
    Frame {
        subject: "report of a run",
        headline: Shown::of(&headline),
        state: Some(StateChip {
            class,
            text: Shown::of(&state),
        }),
        command: Some(Shown::command(&run.command)),
        facts,
        tiles: tiles(report.record, curves, ending),
        footer: Shown::of(&format!(
            "Written by brimful {} from a run record. The page loads nothing from the network. \
             Run `brimful explain {}` to see the verdict in the terminal.",
            env!("CARGO_PKG_VERSION"),
            run.id
        )),
    }
}

fn with_peak(words: &str, peak: Option<Bytes>, host: Option<&Curve>) -> String {
    let limit = host.and_then(|host| host.limit);
    match (peak, limit) {
        (Some(peak), Some(limit)) => format!("{words}; host memory peaked at {peak} of {limit}"),
        (Some(peak), None) => format!("{words}; host memory peaked at {peak}"),
        (None, _) => words.to_owned(),
    }
}

/// What a shell would have shown.
fn exit_words(record: &Record) -> Option<String> {
    let end = record.last_attempt()?.end.as_ref()?;
    match &end.outcome {
        Outcome::Failed { code } => Some(format!("exit code {code}")),
        Outcome::Killed { signal } => Some(signal_name(*signal)),
        Outcome::Finished => None,
        other => Some(outcome(other)),
    }
}

fn tiles(record: &Record, curves: &[Curve], ending: RunEnding) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let peak_of = |measured: Measured| {
        let curve = curves.iter().find(|curve| curve.measured == measured)?;
        Some((
            curve.highest().filter(|peak| *peak >= MIN_SHOWN)?,
            curve.limit,
        ))
    };
    if let Some((peak, limit)) = peak_of(Measured::Host) {
        let mut tile = Tile::of_memory("Host memory, peak", peak, limit, "host");
        let last = record.last_attempt();
        tile.hint = last
            .and_then(|last| last.start.limit_set_by.as_ref())
            .map(|by| Shown::of(&format!("limit set by {by}")));
        tiles.push(tile);
    }
    let gpus: Vec<(u32, Bytes, Option<Bytes>)> = curves
        .iter()
        .filter_map(|curve| match curve.measured {
            Measured::Gpu(index) => {
                let peak = curve.highest().filter(|peak| *peak >= MIN_SHOWN)?;
                Some((index, peak, curve.limit))
            }
            _ => None,
        })
        .collect();
    let share = |peak: Bytes, limit: Option<Bytes>| peak.share_of(limit.unwrap_or(peak));
    let fullest = gpus
        .iter()
        .max_by(|a, b| share(a.1, a.2).total_cmp(&share(b.1, b.2)));
    if let Some((index, peak, limit)) = fullest {
        let mut tile = Tile::of_memory(&format!("GPU {index}, peak"), *peak, *limit, "gpu");
        if gpus.len() > 1 {
            tile.hint = Some(Shown::of(&format!("the fullest of {} GPUs", gpus.len())));
        }
        tiles.push(tile);
    }
    if let Some((peak, limit)) = peak_of(Measured::SharedMemory) {
        tiles.push(Tile::of_memory("/dev/shm, peak", peak, limit, "shm"));
    }
    let n_attempts = record.attempts.len();
    let changed = record.last_attempt().map(|last| &last.start.changed);
    let changed = changed
        .filter(|changed| !changed.is_empty())
        .map(|changed| {
            let parts: Vec<String> = changed
                .iter()
                .take(4)
                .map(|change| format!("{} {} to {}", change.knob, change.from, change.to))
                .collect();
            Shown::of(&format!("last change: {}", parts.join(", ")))
        });
    tiles.push(Tile {
        name: Shown::of("Attempts"),
        value: n_attempts.to_string(),
        hint: changed.or_else(|| {
            let words = match ending {
                RunEnding::Running => "in progress",
                _ if n_attempts <= 1 => "not restarted",
                _ => "restarted after failures",
            };
            Some(Shown::of(words))
        }),
        ..Tile::default()
    });
    tiles
}
