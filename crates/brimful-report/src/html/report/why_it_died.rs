//! Why a run died: its last minutes, the evidence, and what to do.

use brimful::explain::{Cause, Detail, Verdict};
use brimful::record::{
    Attempt, AttemptSpan, Curve, GpuProof, HookLine, Measured, Record, TimeAxis, curves,
};
use brimful::units::Bytes;
use brimful::watch::{Action, ProcessSample, Role, Sample, Urgency};
use serde::Serialize;

use crate::html::report::chart::{Scale, Tick, area_to, line};
use crate::html::report::how_full::{class, highest, name};
use crate::html::report::shown::Shown;
use crate::html::report::time::{TimeTick, exact, percent, ticks_to_end};
use crate::text::run::{action, outcome};
use crate::text::{confidence, source_name};

const N_COLUMNS: usize = 360;
/// The last part of a run that is shown; longer if alarms came earlier.
const WINDOW_MS: u64 = 60_000;
const MAX_WINDOW_MS: u64 = 600_000;
/// A run that was not much longer is shown as a whole.
const WHOLE_MS: u64 = 90_000;
const MAX_MOMENTS: usize = 8;
const MAX_LINES: usize = 16;
const MAX_PARTS: usize = 10;
/// Less is not worth a picture.
const MIN_SHOWN: Bytes = Bytes::from_mib(16);

/// The view.
#[derive(Debug, Serialize)]
pub(super) struct WhyItDied {
    cause: String,
    confidence: &'static str,
    zoom: Option<Zoom>,
    moments: Vec<Moment>,
    held: Vec<Holders>,
    remedies: Vec<RemedyBar>,
    evidence: Vec<EvidenceLine>,
    would_settle: Vec<Shown>,
}

/// The last part of the run, close to the limit.
#[derive(Debug, Serialize)]
struct Zoom {
    title: String,
    described: String,
    n_columns: usize,
    class: &'static str,
    line: String,
    total: Option<String>,
    room: Option<String>,
    limit_y: Option<u64>,
    limit_label: Option<String>,
    limit_label_at: f64,
    y_ticks: Vec<Tick>,
    x_ticks: Vec<TimeTick>,
}

/// An alarm, an action or the end.
#[derive(Debug, Serialize)]
struct Moment {
    number: usize,
    class: &'static str,
    when: String,
    text: Shown,
    /// Percent of the chart's width and height; nothing without a chart.
    left: Option<f64>,
    top: f64,
    #[serde(skip)]
    at_ms: u64,
}

/// Who held the memory.
#[derive(Debug, Serialize)]
struct Holders {
    title: String,
    described: String,
    parts: Vec<Part>,
}

#[derive(Debug, Serialize)]
struct Part {
    name: String,
    bytes: String,
    share: f64,
    color: &'static str,
}

#[derive(Debug, Serialize)]
struct RemedyBar {
    text: Shown,
    effect: Option<Shown>,
    percent: Option<f64>,
}

#[derive(Debug, Serialize)]
struct EvidenceLine {
    source: &'static str,
    text: Shown,
}

impl WhyItDied {
    pub(super) fn of(record: &Record, axis: &TimeAxis, verdict: &Verdict) -> WhyItDied {
        let last = record.last_attempt().zip(axis.attempts.last());
        let mut view = WhyItDied {
            cause: match verdict.detail {
                Detail::Unspecified => verdict.cause.id().to_owned(),
                detail => format!("{} · {detail}", verdict.cause.id()),
            },
            confidence: confidence(verdict.confidence),
            zoom: None,
            moments: Vec::new(),
            held: Vec::new(),
            remedies: verdict
                .remedies
                .iter()
                .take(MAX_LINES)
                .map(remedy)
                .collect(),
            evidence: verdict
                .evidence
                .iter()
                .take(MAX_LINES)
                .map(|proof| EvidenceLine {
                    source: source_name(proof.source),
                    text: Shown::of(&proof.text),
                })
                .collect(),
            would_settle: verdict
                .would_settle
                .iter()
                .take(MAX_LINES)
                .map(|line| Shown::of(line))
                .collect(),
        };
        if let Some((attempt, span)) = last {
            let window = window(attempt, *span);
            view.moments = moments(attempt, *span, window);
            if let Some(zoomed) = Zoomed::of(record, axis, verdict.cause, window) {
                zoomed.place(&mut view.moments);
                view.zoom = Some(zoomed.zoom());
            }
            view.held.extend(gpu_holders(attempt, verdict.cause));
            view.held.extend(host_holders(attempt, verdict.cause));
        }
        view
    }
}

fn remedy(remedy: &brimful::explain::Remedy) -> RemedyBar {
    let used = remedy
        .memory
        .map(|memory| percent(memory.used.get(), memory.limit.get()));
    RemedyBar {
        text: Shown::of(&remedy.text),
        effect: remedy.effect.as_deref().map(Shown::of),
        percent: used,
    }
}

/// The last minute, and longer if an alarm came before it.
fn window(attempt: &Attempt, span: AttemptSpan) -> (u64, u64) {
    let lasted = span.end_ms - span.start_ms;
    if lasted <= WHOLE_MS {
        return (span.start_ms, span.end_ms);
    }
    let oldest = lasted.saturating_sub(MAX_WINDOW_MS);
    let first_alarm = attempt
        .alarms
        .iter()
        .filter(|alarm| alarm.urgency > Urgency::Note && alarm.at_ms >= oldest)
        .map(|alarm| alarm.at_ms)
        .min();
    let before = lasted.saturating_sub(first_alarm.unwrap_or(lasted));
    let length = (before + before / 8).max(WINDOW_MS).min(lasted);
    (span.end_ms - length, span.end_ms)
}

/// The most recent events in this part of the attempt.
fn moments(attempt: &Attempt, span: AttemptSpan, (from_ms, to_ms): (u64, u64)) -> Vec<Moment> {
    let mut found: Vec<(u64, &'static str, Shown)> = Vec::new();
    for alarm in &attempt.alarms {
        let class = match alarm.urgency {
            Urgency::Note => "note",
            Urgency::Warning => "warning",
            Urgency::Critical => "critical",
        };
        found.push((alarm.at_ms, class, Shown::of(&alarm.message)));
    }
    for done in &attempt.actions {
        if done.action != Action::KeepWatching {
            let text = action(done);
            found.push((
                done.at_ms,
                "action",
                Shown::of(text.trim_start_matches("brimful: ")),
            ));
        }
    }
    let end = match &attempt.end {
        Some(end) => format!("the run {}", outcome(&end.outcome)),
        None => "brimful ended before the run; this is the last that was seen".to_owned(),
    };
    for (at_ms, _, _) in &mut found {
        *at_ms = span.start_ms.saturating_add(*at_ms).min(to_ms);
    }
    found.retain(|(at_ms, _, _)| *at_ms >= from_ms);
    found.sort_by_key(|(at_ms, _, _)| *at_ms);
    found.push((to_ms, "died", Shown::of(&end)));
    let skipped = found.len().saturating_sub(MAX_MOMENTS);
    found
        .into_iter()
        .skip(skipped)
        .enumerate()
        .map(|(idx, (at_ms, class, text))| Moment {
            number: idx + 1,
            class,
            when: match to_ms - at_ms {
                0 => "end".to_owned(),
                before => format!("−{}", exact(before)),
            },
            text,
            left: None,
            top: 0.0,
            at_ms,
        })
        .collect()
}

/// The curves of the last part, and their scale.
struct Zoomed {
    curve: Curve,
    /// What counts against the limit, where that is more than the curve itself.
    total: Option<Curve>,
    scale: Scale,
    window: (u64, u64),
}

impl Zoomed {
    fn of(record: &Record, axis: &TimeAxis, cause: Cause, window: (u64, u64)) -> Option<Zoomed> {
        let found = curves(record, axis, window, N_COLUMNS);
        let is_gpu = |curve: &&Curve| matches!(curve.measured, Measured::Gpu(_));
        let by = |measured: Measured| found.iter().find(|curve| curve.measured == measured);
        let curve = match cause {
            Cause::ShmExhausted => by(Measured::SharedMemory),
            Cause::CudaOomExhausted | Cause::CudaOomFragmented | Cause::CudaOomOtherProcess => {
                found
                    .iter()
                    .filter(is_gpu)
                    .max_by_key(|curve| curve.highest())
            }
            _ => by(Measured::Host),
        }?;
        let total = (curve.measured == Measured::Host)
            .then(|| by(Measured::HostTotal))
            .flatten();
        let above = total.unwrap_or(curve);
        let peak = above.highest()?;
        if peak < MIN_SHOWN {
            return None;
        }
        let near = curve.limit.filter(|limit| peak.get() >= limit.get() / 4);
        let lowest = curve
            .columns
            .iter()
            .flatten()
            .map(|cell| cell.highest)
            .min()?;
        let top = peak.max(near.unwrap_or_default());
        let bottom = if lowest.get() > top.get() / 2 {
            lowest.saturating_sub(Bytes(top.saturating_sub(lowest).get() / 2))
        } else {
            Bytes::ZERO
        };
        Some(Zoomed {
            scale: Scale::between(bottom, top, near),
            curve: curve.clone(),
            total: total.cloned(),
            window,
        })
    }

    fn above(&self) -> &Curve {
        self.total.as_ref().unwrap_or(&self.curve)
    }

    /// Puts the numbers of the story onto the chart.
    fn place(&self, moments: &mut [Moment]) {
        let (from_ms, to_ms) = self.window;
        let values: Vec<Option<Bytes>> = highest(&self.above().columns).collect();
        for moment in moments {
            let past = percent(moment.at_ms.saturating_sub(from_ms), to_ms - from_ms);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a percentage of a few hundred columns"
            )]
            let column = (past / 100.0 * (N_COLUMNS - 1) as f64) as usize;
            let before = values
                .iter()
                .take(column + 1)
                .rev()
                .find_map(|value| *value);
            moment.left = Some(past);
            moment.top = self.scale.at(before.unwrap_or_default());
        }
    }

    fn zoom(&self) -> Zoom {
        let scale = &self.scale;
        let length = self.window.1 - self.window.0;
        let what = name(self.curve.measured);
        let limit_y = scale.limit.map(|limit| scale.y(limit));
        let is_apart = self.total.as_ref().is_some_and(|total| {
            let pairs = highest(&total.columns).zip(highest(&self.curve.columns));
            let limit = self.curve.limit.unwrap_or_default();
            pairs
                .filter_map(|(total, own)| Some(total?.saturating_sub(own?)))
                .any(|other| other.share_of(limit) > 0.03)
        });
        let mut described = format!("{what} in the last {}", exact(length));
        if let (Some(peak), Some(limit)) = (self.above().highest(), self.curve.limit) {
            described = format!("{described}: peak {peak} of {limit}");
        }
        Zoom {
            title: format!("{what} in the last {}", exact(length)),
            described,
            n_columns: N_COLUMNS,
            class: class(self.curve.measured),
            line: line(highest(&self.curve.columns), scale),
            total: self
                .total
                .as_ref()
                .filter(|_| is_apart)
                .map(|total| line(highest(&total.columns), scale)),
            room: limit_y.map(|limit_y| area_to(highest(&self.above().columns), scale, limit_y)),
            limit_y,
            limit_label: scale.limit.map(|limit| match self.curve.measured {
                Measured::Host | Measured::HostTotal => format!("brim {limit}"),
                _ => format!("size {limit}"),
            }),
            limit_label_at: (limit_y.unwrap_or(0) as f64 / 10.0 - 9.0).max(-8.0),
            y_ticks: scale.ticks(),
            x_ticks: ticks_to_end(length),
        }
    }
}

/// What a GPU held when an allocation failed, as the process itself knew.
fn gpu_holders(attempt: &Attempt, cause: Cause) -> Option<Holders> {
    if !matches!(
        cause,
        Cause::CudaOomExhausted | Cause::CudaOomFragmented | Cause::CudaOomOtherProcess
    ) {
        return None;
    }
    let proof: &GpuProof = attempt.hook.iter().rev().find_map(|line| match line {
        HookLine::CudaOom(proof) => Some(proof),
        _ => None,
    })?;
    let (total, free) = (proof.total?, proof.free?);
    let cached = proof.reserved.saturating_sub(proof.allocated);
    let others = total.saturating_sub(free).saturating_sub(proof.reserved);
    let parts = [
        ("in tensors", proof.allocated, "weights"),
        ("reserved by PyTorch, unused", cached, "workspaces"),
        ("CUDA context and other processes", others, "temporaries"),
        ("free", free, "rest"),
    ];
    let asked = proof.asked.map_or_else(String::new, |asked| {
        format!("; {asked} more were requested")
    });
    Some(holders(
        format!(
            "GPU {} when the allocation failed: {total}{asked}",
            proof.device
        ),
        parts
            .into_iter()
            .map(|(name, bytes, color)| (name.to_owned(), bytes, color)),
    ))
}

/// Who held host memory when it was last measured by process.
fn host_holders(attempt: &Attempt, cause: Cause) -> Option<Holders> {
    if !matches!(
        cause,
        Cause::HostOomKill
            | Cause::DataloaderWorkerKilledOom
            | Cause::HostAllocFailed
            | Cause::Ambiguous
    ) {
        return None;
    }
    let last = attempt.end.as_ref().and_then(|end| end.last.as_ref());
    let sample: &Sample = attempt
        .samples
        .iter()
        .chain(last)
        .rfind(|sample| !sample.processes.is_empty())?;
    let mut processes: Vec<&ProcessSample> = sample.processes.iter().collect();
    processes.sort_by(|a, b| b.private.cmp(&a.private).then(a.role.cmp(&b.role)));
    let sum = |of: &[&ProcessSample]| {
        of.iter().fold(Bytes::ZERO, |sum, process| {
            sum.saturating_add(process.private)
        })
    };
    if sum(&processes) < MIN_SHOWN {
        return None;
    }
    let (shown, rest) = processes.split_at(processes.len().min(MAX_PARTS));
    let mut parts: Vec<(String, Bytes, &'static str)> = shown
        .iter()
        .map(|process| {
            let color = match process.role {
                Role::Main | Role::Rank { .. } => "host",
                Role::Worker { .. } => "temporaries",
                Role::Other => "rest",
            };
            (process.role.to_string(), process.private, color)
        })
        .collect();
    if !rest.is_empty() {
        parts.push((format!("{} more processes", rest.len()), sum(rest), "rest"));
    }
    let end_ms = attempt.duration_ms();
    let before = exact(end_ms.saturating_sub(sample.at_ms));
    Some(holders(
        format!("Private memory of each process, {before} before the end"),
        parts.into_iter(),
    ))
}

fn holders(title: String, parts: impl Iterator<Item = (String, Bytes, &'static str)>) -> Holders {
    let parts: Vec<Part> = parts
        .filter(|(_, bytes, _)| *bytes > Bytes::ZERO)
        .map(|(name, bytes, color)| Part {
            name,
            bytes: bytes.to_string(),
            // Whole MiB: the widths of a flexible row.
            share: (bytes.get() / Bytes::MIB).max(1) as f64,
            color,
        })
        .collect();
    let words: Vec<String> = parts
        .iter()
        .map(|part| format!("{} {}", part.name, part.bytes))
        .collect();
    Holders {
        described: format!("{title}: {}", words.join(", ")),
        title,
        parts,
    }
}
