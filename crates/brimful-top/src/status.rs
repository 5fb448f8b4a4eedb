//! One line, for terminals that have no room for panels.

use brimful::record::Outcome;
use brimful_report::text::run as report;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::bars::{Part, bar};
use crate::look::Tone;
use crate::shown::{RunState, Shown};
use crate::words::{count, cut};

const BAR_COLUMNS: usize = 8;

/// The line, cut to this width; what does not fit is left out, least important first.
pub(crate) fn status_line(shown: &Shown<'_>, columns: usize) -> Line<'static> {
    let live = shown.live;
    let mut spans = Vec::new();
    let mut parts = Vec::new();
    match (shown.state, live.end()) {
        (RunState::Running, _) => {}
        (_, Some(end)) => parts.push(match &end.outcome {
            Outcome::Killed { signal } => format!("killed by {}", report::signal_name(*signal)),
            Outcome::Failed { code } => format!("exit code {code}"),
            Outcome::Finished => "finished".to_owned(),
            Outcome::StoppedByUs { .. } | Outcome::StoppedByUser { .. } => "stopped".to_owned(),
            Outcome::Unseen => "ended".to_owned(),
            Outcome::NotStarted { .. } => "failed to start".to_owned(),
        }),
        (_, None) => parts.push("ended".to_owned()),
    }
    let mut room = columns;
    if let Some(host) = live.host() {
        let used = host.limit.saturating_sub(host.headroom);
        if columns >= 2 * BAR_COLUMNS {
            let part = Part {
                share: used.share_of(host.limit),
                character: '█',
                tone: Tone::Host,
            };
            spans.extend(bar(&[part], BAR_COLUMNS, shown.look));
            spans.push(Span::raw(" "));
            room -= BAR_COLUMNS + 1;
        }
        let (used, limit) = report::pair(used, host.limit);
        parts.insert(0, format!("{used}/{limit}"));
        let forecast = live.forecast(shown.controls.range);
        parts.extend(
            forecast.map(|forecast| format!("limit in {}", report::duration(forecast.left_ms))),
        );
    }
    for gpu in live.gpus() {
        let (used, total) = report::pair(gpu.used, gpu.total);
        parts.push(format!("GPU{} {used}/{total}", gpu.index));
    }
    let steps = live.progress().filter(|progress| progress.steps > 0);
    parts.extend(steps.map(|progress| format!("step {}", count(progress.steps))));
    if parts.is_empty() {
        parts.push("waiting for the first sample".to_owned());
    }
    let mut text = cut(&parts[0], room);
    for part in &parts[1..] {
        let longer = format!("{text} · {part}");
        if longer.width() <= room {
            text = longer;
        }
    }
    spans.push(Span::raw(text));
    Line::from(spans)
}
