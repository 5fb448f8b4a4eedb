//! Which panels a screen has, and where.

use brimful::live::TimeRange;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::frame::{Panel, draw_frame};
use crate::look::Tone;
use crate::panels;
use crate::shown::{RunState, Shown};
use crate::words::{cut_front, time};

/// From this width on, curves are at the left and the rest at the right.
const WIDE_COLUMNS: u16 = 120;
/// GPUs with a panel each; more share one.
const MAX_GPU_PANELS: usize = 2;
const MAX_GPU_PANELS_WIDE: usize = 4;

/// All panels below a header.
pub(crate) fn draw_panels(shown: &Shown<'_>, area: Rect, buffer: &mut Buffer) {
    draw_header(shown, area, buffer);
    let below = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    };
    let focus = shown.controls.focus;
    let footer = footer(shown);
    if area.width < WIDE_COLUMNS {
        let mut column = Vec::new();
        column.extend(panels::end(shown));
        column.push(panels::host(shown));
        column.extend(gpu_panels(shown, MAX_GPU_PANELS, false));
        column.extend(panels::shm(shown));
        column.push(panels::processes(shown));
        column.push(panels::alarms(shown));
        column.extend(panels::progress(shown));
        draw_frame(buffer, below, &column, focus, &footer, shown.look);
        return;
    }
    let left = Rect {
        width: area.width / 2,
        ..below
    };
    let right = Rect {
        x: area.x + left.width,
        width: area.width - left.width,
        ..below
    };
    let mut curves = Vec::new();
    curves.push(panels::host(shown));
    curves.extend(gpu_panels(shown, MAX_GPU_PANELS_WIDE, true));
    curves.extend(panels::shm(shown));
    let mut rest = Vec::new();
    rest.extend(panels::end(shown));
    rest.extend(panels::progress(shown));
    rest.push(panels::processes(shown));
    rest.push(panels::alarms(shown));
    draw_frame(buffer, left, &curves, focus, &footer, shown.look);
    draw_frame(buffer, right, &rest, focus, &Line::default(), shown.look);
}

fn gpu_panels<'a>(shown: &Shown<'a>, max: usize, has_curve: bool) -> Vec<Panel<'a>> {
    let gpus = shown.live.gpus();
    if gpus.len() > max {
        return vec![panels::gpus(shown)];
    }
    gpus.iter()
        .map(|gpu| panels::gpu(shown, gpu, has_curve))
        .collect()
}

/// The command at the left, which run it is at the right.
fn draw_header(shown: &Shown<'_>, area: Rect, buffer: &mut Buffer) {
    let live = shown.live;
    // The end of an ID is enough to find a run.
    let id = match live.id().char_indices().rev().nth(3) {
        Some((at, _)) if area.width < WIDE_COLUMNS => &live.id()[at..],
        _ => live.id(),
    };
    let mut parts = vec![format!("run {id}")];
    let attempt = live.attempt().map(|attempt| attempt.number);
    parts.extend(attempt.map(|number| format!("attempt {number}")));
    parts.push(time(live.elapsed_ms()));
    let state = match shown.state {
        RunState::Running => shown
            .quiet_seconds
            .map(|seconds| format!("no sample for {}", time(seconds * 1000))),
        RunState::BetweenAttempts => Some("between attempts".to_owned()),
        RunState::Ended | RunState::CutOff => Some("ended".to_owned()),
    };
    parts.extend(state);
    let right = parts.join(" · ");
    let width = usize::from(area.width);
    let name = "brimful top  ";
    let room = width.saturating_sub(name.len() + right.width() + 2);
    let command = cut_front(live.command(), room);
    let strong = shown.look.style(Tone::Strong);
    let plain = shown.look.style(Tone::Plain);
    buffer.set_stringn(area.x, area.y, name, width, strong);
    let at = area.x + u16::try_from(name.len()).unwrap_or(0);
    if at < area.right() {
        buffer.set_stringn(at, area.y, command, room, plain);
    }
    let right_width = u16::try_from(right.width())
        .unwrap_or(area.width)
        .min(area.width);
    let at = area.right() - right_width;
    buffer.set_stringn(at, area.y, right, usize::from(right_width), plain);
}

/// The keys, with the chosen time range.
fn footer(shown: &Shown<'_>) -> Line<'static> {
    if !shown.is_interactive {
        return Line::default();
    }
    let mut spans = vec![Span::raw(" q quit · ←→")];
    for range in TimeRange::ALL {
        let name = match range {
            TimeRange::Minute => "1",
            TimeRange::TenMinutes => "10",
            TimeRange::Hour => "60",
            TimeRange::All => "all",
        };
        spans.push(Span::raw(" "));
        let tone = if shown.controls.range == range {
            Tone::Chosen
        } else {
            Tone::Plain
        };
        spans.push(Span::styled(name, shown.look.style(tone)));
        if range == TimeRange::Hour {
            spans.push(Span::raw(" min,"));
        }
    }
    spans.push(Span::raw(" · tab panel · e explain · ? help "));
    Line::from(spans)
}
