//! Events in words.

use brimful::live::{EventKind, LiveEvent};
use brimful::watch::Urgency;
use brimful_report::text::run as words;
use ratatui::text::{Line, Span};

use crate::look::{Look, Tone};
use crate::words::{clock, cut, wrap};

/// Columns of the time and the mark before a message.
const LEAD: usize = 10;

/// A sentence about an event.
pub(crate) fn message(kind: &EventKind) -> String {
    match kind {
        EventKind::Alarm { message, .. }
        | EventKind::Gap { message }
        | EventKind::Exception { message } => message.clone(),
        EventKind::Action(line) => {
            let text = words::action(line);
            text.strip_prefix("brimful: ").unwrap_or(&text).to_owned()
        }
        EventKind::CudaOom { device } => format!("PyTorch ran out of memory on cuda:{device}"),
        EventKind::AttemptStarted { number, changed } if changed.is_empty() => {
            format!("attempt {number} started")
        }
        EventKind::AttemptStarted { number, changed } => {
            format!("attempt {number} started: {}", changed.join(", "))
        }
        EventKind::AttemptEnded { number, outcome } => {
            format!("attempt {number} {}", words::outcome(outcome))
        }
    }
}

fn mark(kind: &EventKind) -> (&'static str, Tone) {
    match kind {
        EventKind::Alarm { urgency, .. } => match urgency {
            Urgency::Note => ("●", Tone::Note),
            Urgency::Warning => ("◆", Tone::Warning),
            Urgency::Critical => ("▲", Tone::Critical),
        },
        EventKind::CudaOom { .. } | EventKind::Exception { .. } => ("▲", Tone::Critical),
        EventKind::Action(_) => ("→", Tone::Strong),
        EventKind::Gap { .. }
        | EventKind::AttemptStarted { .. }
        | EventKind::AttemptEnded { .. } => ("·", Tone::Faint),
    }
}

/// An event in one line.
pub(crate) fn short_line(event: &LiveEvent, columns: usize, look: Look) -> Line<'static> {
    let text = cut(&message(&event.kind), columns.saturating_sub(LEAD));
    lines(event, vec![text], look).remove(0)
}

/// An event in as many lines as its message needs.
pub(crate) fn long_lines(event: &LiveEvent, columns: usize, look: Look) -> Vec<Line<'static>> {
    let text = wrap(&message(&event.kind), columns.saturating_sub(LEAD));
    lines(event, text, look)
}

fn lines(event: &LiveEvent, text: Vec<String>, look: Look) -> Vec<Line<'static>> {
    let (mark, tone) = mark(&event.kind);
    text.into_iter()
        .enumerate()
        .map(|(idx, text)| {
            if idx > 0 {
                return Line::from(format!("{}{text}", " ".repeat(LEAD)));
            }
            let time = format!("{:<8}", clock(event.at_ms));
            Line::from(vec![
                Span::styled(time, look.style(Tone::Faint)),
                Span::styled(mark, look.style(tone)),
                Span::raw(format!(" {text}")),
            ])
        })
        .collect()
}
