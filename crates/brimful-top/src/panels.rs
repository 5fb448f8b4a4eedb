//! The panels, each from the part of a run that it is about. What is not known is left out.

use brimful::live::{LiveGpu, LiveProcess, TimeRange};
use brimful::record::Outcome;
use brimful::units::{Bytes, rounded};
use brimful::watch::Role;
use brimful_report::text::run as report;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::bars::{Part, bar, curve};
use crate::events::{long_lines, short_line};
use crate::frame::{Panel, PanelKind};
use crate::look::{Look, Tone};
use crate::shown::{RunState, Shown};
use crate::words::{count, cut, in_unit, pad, time, unit_of, wrap};

/// Use of a limit from which on it is shown as a warning.
const NEARLY_FULL: f64 = 0.9;
/// A share of the rise that is marked.
const LARGE_SHARE: f64 = 0.1;
/// Columns of the name of a GPU, beside its figures.
const MAX_TITLE: usize = 40;
/// Heading of the columns of processes.
const PROCESS_COLUMNS: &str = "private  shared  swapped  of the rise";

/// How the last attempt ended, and why as far as it is recorded.
pub(crate) fn end<'a>(shown: &Shown<'a>) -> Option<Panel<'a>> {
    let live = shown.live;
    let (title, values, text) = match (shown.state, live.end()) {
        (RunState::Running, _) => return None,
        (_, Some(end)) => {
            let title = match shown.state {
                RunState::Ended => "ended",
                _ => "between attempts",
            };
            let verdict = shown.verdict.or(end.verdict.as_deref());
            let text = match (verdict, &end.outcome) {
                (Some(verdict), _) => brimful::live::plain_text(&verdict.summary),
                (None, Outcome::Finished) => String::new(),
                (None, _) => format!("Run `brimful explain {}` to see the cause", live.id()),
            };
            let mut values = vec![
                brimful::live::plain_text(&report::outcome(&end.outcome)),
                format!("after {}", time(end.at_ms)),
            ];
            let peak = end.peak_host_used;
            values.extend(peak.map(|peak| format!("peak {}", report::short(peak))));
            (title, values, text)
        }
        (_, None) => {
            let text = "brimful was killed, or the machine stopped: the last lines are missing";
            let values = vec!["the exit was not recorded".to_owned()];
            ("ended", values, text.to_owned())
        }
    };
    let tone = match live.end().map(|end| &end.outcome) {
        Some(Outcome::Finished) => Tone::Strong,
        _ => Tone::Critical,
    };
    let n_rows = match text.width() {
        0 => 0,
        1..=70 => 1,
        _ => 2,
    };
    Some(Panel {
        kind: PanelKind::End,
        title: title.to_owned(),
        tone,
        values,
        min_rows: n_rows.min(1),
        wanted_rows: n_rows,
        can_grow: false,
        body: Box::new(move |columns, rows| {
            let mut lines = wrap(&text, columns);
            if lines.len() > rows && rows > 0 {
                lines[rows - 1] = cut(&lines[rows - 1..].join(" "), columns);
            }
            lines.into_iter().map(Line::from).collect()
        }),
    })
}

/// Host memory against its limit.
pub(crate) fn host<'a>(shown: &Shown<'a>) -> Panel<'a> {
    let live = shown.live;
    let Some(host) = live.host().copied() else {
        return no_sample(shown);
    };
    let (range, look) = (shown.controls.range, shown.look);
    let used = host.limit.saturating_sub(host.headroom);
    let mut values = vec![
        of(used, host.limit),
        format!("{} left", report::short(host.headroom)),
    ];
    let is_running = shown.state == RunState::Running;
    values.extend(live.rise(range).filter(|_| is_running).map(rise));
    let forecast = live.forecast(range).map(|forecast| {
        let left = about(forecast.left_ms);
        match forecast.observed_ms {
            Some(ms) => format!(
                "reaches the limit in {left} at the rate of the last {}",
                time(ms)
            ),
            None => format!("reaches the limit in {left} at the present rate"),
        }
    });
    let tone = if used.share_of(host.limit) >= NEARLY_FULL {
        Tone::Warning
    } else {
        Tone::Host
    };
    let n_texts = usize::from(forecast.is_some());
    Panel {
        kind: PanelKind::Host,
        title: format!("host, {}", span(live.used_history().span_ms(range), range)),
        tone: Tone::Strong,
        values,
        min_rows: 2,
        wanted_rows: 2 + n_texts,
        can_grow: true,
        body: Box::new(move |columns, rows| {
            let has_forecast = forecast.is_some() && rows > 2;
            let n_curve = rows.saturating_sub(1 + usize::from(has_forecast));
            let cells = live.used_history().cells(range, columns);
            let mut lines = curve(&cells, host.limit.get(), n_curve, Tone::Host, look);
            let part = Part {
                share: used.share_of(host.limit),
                character: '█',
                tone,
            };
            lines.push(Line::from(bar(&[part], columns, look)));
            if let Some(text) = forecast.as_ref().filter(|_| has_forecast) {
                lines.push(Line::styled(cut(text, columns), look.style(Tone::Warning)));
            }
            lines
        }),
    }
}

fn no_sample<'a>(shown: &Shown<'a>) -> Panel<'a> {
    let text = match shown.state {
        RunState::Running => "waiting for the first sample",
        _ => "no sample was recorded",
    };
    Panel {
        kind: PanelKind::Host,
        title: "host".to_owned(),
        tone: Tone::Strong,
        values: Vec::new(),
        min_rows: 1,
        wanted_rows: 1,
        can_grow: true,
        body: Box::new(move |_, _| vec![Line::from(text)]),
    }
}

/// One panel per GPU.
pub(crate) fn gpu<'a>(shown: &Shown<'a>, gpu: &'a LiveGpu, has_curve: bool) -> Panel<'a> {
    let (live, range, look) = (shown.live, shown.controls.range, shown.look);
    let legend = gpu_legend(gpu);
    let n_legend = usize::from(!legend.is_empty());
    Panel {
        kind: PanelKind::Gpu,
        title: match shown.live.gpu_name(gpu.index) {
            Some(name) => cut(&format!("GPU {} {name}", gpu.index), MAX_TITLE),
            None => format!("GPU {}", gpu.index),
        },
        tone: Tone::Strong,
        values: vec![
            of(gpu.used, gpu.total),
            format!("{} left", report::short(gpu.total.saturating_sub(gpu.used))),
        ],
        min_rows: 1,
        wanted_rows: 1 + n_legend,
        can_grow: has_curve,
        body: Box::new(move |columns, rows| {
            let n_curve = rows.saturating_sub(1 + n_legend);
            let mut lines = Vec::new();
            if let Some(history) = live.gpu_history(gpu.index).filter(|_| has_curve) {
                let cells = history.cells(range, columns);
                lines = curve(&cells, gpu.total.get(), n_curve, Tone::Gpu, look);
            }
            lines.push(Line::from(bar(&gpu_parts(gpu), columns, look)));
            lines.push(Line::from(cut(&legend, columns)));
            lines
        }),
    }
}

/// All GPUs in one panel, a row each.
pub(crate) fn gpus<'a>(shown: &Shown<'a>) -> Panel<'a> {
    let (gpus, look) = (shown.live.gpus(), shown.look);
    Panel {
        kind: PanelKind::Gpu,
        title: format!("{} GPUs", gpus.len()),
        tone: Tone::Strong,
        values: vec!["█ allocated  ▒ cached  ▓ other".to_owned()],
        min_rows: gpus.len().min(3),
        wanted_rows: gpus.len(),
        can_grow: false,
        body: Box::new(move |columns, _| {
            let row = |gpu: &LiveGpu| {
                let lead = pad(&gpu.index.to_string(), 4);
                let text = format!("  {:>20}", of(gpu.used, gpu.total));
                let room = columns.saturating_sub(lead.len() + text.len());
                let mut spans = vec![Span::raw(lead)];
                spans.extend(bar(&gpu_parts(gpu), room, look));
                spans.push(Span::raw(text));
                Line::from(spans)
            };
            gpus.iter().map(row).collect()
        }),
    }
}

/// `/dev/shm`, and time lost to memory pressure.
pub(crate) fn shm<'a>(shown: &Shown<'a>) -> Option<Panel<'a>> {
    let look = shown.look;
    let shm = shown.live.shm().copied();
    let stall = shown.live.stall().map(|stall| {
        format!(
            "stalled on memory: some {:.1} %, full {:.1} %",
            stall.some_percent.clamp(0.0, 100.0),
            stall.full_percent.clamp(0.0, 100.0)
        )
    });
    if shm.is_none() && stall.is_none() {
        return None;
    }
    Some(Panel {
        kind: PanelKind::Shm,
        title: if shm.is_some() {
            "/dev/shm"
        } else {
            "pressure"
        }
        .to_owned(),
        tone: Tone::Strong,
        values: shm.iter().map(|shm| of(shm.used, shm.total)).collect(),
        min_rows: 1,
        wanted_rows: 1,
        can_grow: false,
        body: Box::new(move |columns, _| {
            let mut spans = Vec::new();
            let text = stall.clone().unwrap_or_default();
            if let Some(shm) = shm {
                let part = Part {
                    share: shm.used.share_of(shm.total),
                    character: '█',
                    tone: Tone::Shm,
                };
                let room = columns.saturating_sub(text.len() + 3).clamp(6, 24);
                spans.extend(bar(&[part], room, look));
                spans.push(Span::raw("   "));
            }
            spans.push(Span::raw(text));
            vec![Line::from(spans)]
        }),
    })
}

/// The processes of the job by role.
pub(crate) fn processes<'a>(shown: &Shown<'a>) -> Panel<'a> {
    let range = shown.controls.range;
    let processes = shown.live.processes(range);
    let n_left_out = shown.live.n_processes_left_out();
    let is_focused = shown.controls.focus == Some(PanelKind::Processes);
    let scroll = if is_focused { shown.controls.scroll } else { 0 };
    let largest = processes
        .iter()
        .map(|process| process.private.max(process.shared))
        .max();
    let (unit, name) = unit_of(largest.unwrap_or_default());
    let look = shown.look;
    let values = match processes.len() {
        0 => Vec::new(),
        _ => vec![format!("{name}: {PROCESS_COLUMNS}")],
    };
    Panel {
        kind: PanelKind::Processes,
        title: "processes".to_owned(),
        tone: Tone::Strong,
        values,
        min_rows: processes.len().clamp(1, 2),
        wanted_rows: processes.len().max(1),
        can_grow: false,
        body: Box::new(move |columns, rows| {
            if processes.is_empty() {
                return vec![Line::styled("not measured", look.style(Tone::Faint))];
            }
            let row = |process: &LiveProcess| process_line(process, unit, columns, look);
            let from = scroll.min(processes.len() - 1);
            let n_below = (processes.len() - from).saturating_sub(rows) + n_left_out;
            let mut lines: Vec<_> = processes[from..].iter().take(rows).map(row).collect();
            if n_below > 0 && rows > 1 {
                let n_more = if lines.len() == rows {
                    lines.pop();
                    n_below + 1
                } else {
                    n_below
                };
                let text = format!("and {n_more} more");
                lines.push(Line::styled(text, look.style(Tone::Faint)));
            }
            lines
        }),
    }
}

/// Alarms, actions and attempts, newest last.
pub(crate) fn alarms<'a>(shown: &Shown<'a>) -> Panel<'a> {
    let (live, look) = (shown.live, shown.look);
    let n_events = live.events().len();
    let is_focused = shown.controls.focus == Some(PanelKind::Alarms);
    let scroll = if is_focused { shown.controls.scroll } else { 0 };
    let values = match live.n_alarms() {
        0 => vec!["no alarm".to_owned()],
        1 => vec!["1 alarm".to_owned()],
        n => vec![format!("{} alarms", count(n as u64))],
    };
    // Messages that are longer than a line have further ones where there is room.
    let wanted = if is_focused {
        3 * n_events
    } else {
        n_events.min(8)
    };
    Panel {
        kind: PanelKind::Alarms,
        title: "alarms and events".to_owned(),
        tone: Tone::Strong,
        values,
        min_rows: n_events.min(2),
        wanted_rows: wanted,
        can_grow: false,
        body: Box::new(move |columns, rows| {
            let long: Vec<Line<'static>> = live
                .events()
                .flat_map(|event| long_lines(event, columns, look))
                .collect();
            let lines = if is_focused || long.len() <= rows {
                long
            } else {
                live.events()
                    .map(|event| short_line(event, columns, look))
                    .collect()
            };
            let until = lines.len() - scroll.min(lines.len().saturating_sub(1));
            let from = until.saturating_sub(rows);
            lines[from..until].to_vec()
        }),
    }
}

/// Steps, and where this attempt came from.
pub(crate) fn progress<'a>(shown: &Shown<'a>) -> Option<Panel<'a>> {
    let progress = shown.live.progress();
    let mut values = Vec::new();
    if let Some(progress) = progress {
        values.push(format!("step {}", count(progress.steps)));
        let rate = progress
            .steps_per_second
            .filter(|_| shown.state == RunState::Running);
        values.extend(rate.map(step_rate));
        values.extend(
            progress
                .epoch
                .map(|epoch| format!("epoch {}", count(epoch))),
        );
    }
    let mut texts = Vec::new();
    if let Some(attempt) = shown.live.attempt() {
        let mut origin = Vec::new();
        let resumed = attempt.resumed_from.as_ref();
        origin.extend(resumed.map(|path| format!("resumed from {path}")));
        if !attempt.changed.is_empty() {
            origin.push(format!("changed {}", attempt.changed.join(", ")));
        }
        if !origin.is_empty() {
            texts.push(origin.join(" · "));
        }
        if !attempt.settings.is_empty() {
            texts.push(format!("settings: {}", attempt.settings.join(", ")));
        }
        if let Some(checkpoint) = shown.live.checkpoint() {
            texts.push(format!(
                "newest checkpoint {}, {} old",
                checkpoint.path,
                time(checkpoint.age_ms)
            ));
        }
        if !attempt.next_rung.is_empty() && shown.state == RunState::Running {
            texts.push(format!(
                "next rung if memory runs out: {}",
                attempt.next_rung.join(", ")
            ));
        }
    }
    if values.is_empty() && texts.is_empty() {
        return None;
    }
    Some(Panel {
        kind: PanelKind::Progress,
        title: "progress".to_owned(),
        tone: Tone::Strong,
        values,
        min_rows: texts.len().min(1),
        wanted_rows: texts.len(),
        can_grow: false,
        body: Box::new(move |columns, _| {
            texts
                .iter()
                .map(|text| Line::from(cut(text, columns)))
                .collect()
        }),
    })
}

/// What a GPU holds, as parts of a bar.
fn gpu_parts(gpu: &LiveGpu) -> Vec<Part> {
    let part = |bytes: Bytes, character| Part {
        share: bytes.share_of(gpu.total),
        character,
        tone: Tone::Gpu,
    };
    match gpu.allocator {
        Some(held) => vec![
            part(held.allocated, '█'),
            part(held.reserved.saturating_sub(held.allocated), '▒'),
            part(
                gpu.used.saturating_sub(held.reserved.max(held.allocated)),
                '▓',
            ),
        ],
        None => vec![part(gpu.used, '█')],
    }
}

/// What the parts of a bar are, in the unit of the whole.
fn gpu_legend(gpu: &LiveGpu) -> String {
    let mut parts = Vec::new();
    let (unit, _) = unit_of(gpu.total);
    if let Some(held) = gpu.allocator {
        let cached = held.reserved.saturating_sub(held.allocated);
        let beside = gpu.used.saturating_sub(held.reserved.max(held.allocated));
        parts.push(format!("█ allocated {}", in_unit(held.allocated, unit)));
        parts.push(format!("▒ cached {}", in_unit(cached, unit)));
        parts.push(format!("▓ other {}", in_unit(beside, unit)));
    }
    if let Some(others) = gpu.others.filter(|others| *others > Bytes::ZERO) {
        parts.push(format!("other processes {}", in_unit(others, unit)));
    }
    let retries = gpu.allocator.map_or(0, |held| held.retries);
    if retries > 0 {
        parts.push(format!("retries {}", count(retries)));
    }
    parts.join("  ")
}

fn process_line(process: &LiveProcess, unit: u64, columns: usize, look: Look) -> Line<'static> {
    let name = match process.role {
        Role::Other => process.name.clone(),
        role => role.to_string(),
    };
    let share = match process.share_of_rise {
        Some(share) if share >= LARGE_SHARE => format!("▲ {:>3} %", rounded(share * 100.0)),
        Some(share) => format!("{} %", rounded(share * 100.0)),
        None => "-".to_owned(),
    };
    let sizes = format!(
        "{:>7}  {:>6}  {:>7}  {share:>11}",
        in_unit(process.private, unit),
        in_unit(process.shared, unit),
        in_unit(process.swapped, unit),
    );
    let pid = format!(" {:<8}", process.pid);
    let room = columns.saturating_sub(PROCESS_COLUMNS.len() + pid.len());
    Line::from(vec![
        Span::raw(pad(&name, room)),
        Span::styled(pid, look.style(Tone::Faint)),
        Span::raw(sizes),
    ])
}

fn of(part: Bytes, whole: Bytes) -> String {
    let (part, whole) = report::pair(part, whole);
    format!("{part} of {whole}")
}

/// `+2.7 GiB/h`
fn rise(bytes_per_second: f64) -> String {
    let per_hour = Bytes(rounded(bytes_per_second.abs() * 3600.0));
    if per_hour == Bytes::ZERO {
        return "steady".to_owned();
    }
    let sign = if bytes_per_second > 0.0 { '+' } else { '-' };
    format!("{sign}{}/h", report::short(per_hour))
}

fn step_rate(per_second: f64) -> String {
    if per_second >= 0.095 {
        format!("{per_second:.1} steps/s")
    } else {
        format!("{:.1} steps/min", per_second * 60.0)
    }
}

/// A forecast is no more exact than two digits.
pub(crate) fn about(ms: u64) -> String {
    let step = match ms {
        0..10_000 => 1_000,
        10_000..600_000 => 10_000,
        600_000..3_600_000 => 60_000,
        _ => 600_000,
    };
    format!("about {}", time((ms + step / 2) / step * step))
}

/// The time that curves show.
fn span(ms: u64, range: TimeRange) -> String {
    match range {
        TimeRange::All => format!("all {}", time(ms)),
        _ => format!("last {}", time(ms)),
    }
}
