//! The pages over the whole screen: why it ended, and the keys.

use brimful::live::EventKind;
use brimful_report::text::{self, Page};

use crate::events::message;
use crate::panels::about;
use crate::shown::{RunState, Shown};
use crate::words::{time, wrap};

const KEYS: &[(&str, &str)] = &[
    ("q, Esc, Ctrl-C", "quit; Esc closes a page first"),
    (
        "left, right",
        "time range of the curves, the rate and the shares of the rise",
    ),
    ("tab, shift-tab", "choose a panel: processes or alarms"),
    ("up, down, j, k", "scroll the chosen panel or page"),
    ("PageUp, PageDown", "scroll by ten lines"),
    (
        "e",
        "explain why the last attempt ended, or what is known so far",
    ),
    ("?, h", "this page"),
];

const MARKS: &[(&str, &str)] = &[
    (
        "█ ▒ ▓",
        "GPU memory: allocated by PyTorch, cached by its allocator, other use",
    ),
    (
        "of the rise",
        "share of what private memory of all processes rose by in the time range",
    ),
    ("▲ ◆ ●", "a critical alarm, a warning, a note"),
    (
        "stalled",
        "share of the time in which some or all tasks waited for memory",
    ),
];

/// The lines of the help page.
pub(crate) fn help(columns: usize) -> Vec<String> {
    let mut lines = vec!["Keys".to_owned()];
    lines.extend(table(KEYS, columns));
    lines.extend([String::new(), "Words".to_owned()]);
    lines.extend(table(MARKS, columns));
    lines.extend([
        String::new(),
        "Everything comes from the run record. Nothing is sent to the job.".to_owned(),
    ]);
    lines
}

fn table(rows: &[(&str, &str)], columns: usize) -> Vec<String> {
    let lead = 20;
    rows.iter()
        .flat_map(|(left, right)| {
            let texts = wrap(right, columns.saturating_sub(lead).max(20));
            texts.into_iter().enumerate().map(|(idx, text)| {
                let left = if idx == 0 { *left } else { "" };
                format!("  {left:<17} {text}")
            })
        })
        .collect()
}

/// The lines of the page that explains: the verdict on an attempt that ended, else what is known so far.
pub(crate) fn explanation(shown: &Shown<'_>, columns: usize) -> Vec<String> {
    let recorded = shown.live.end().and_then(|end| end.verdict.as_deref());
    let verdict = shown
        .verdict
        .or(recorded)
        .filter(|_| shown.state != RunState::Running);
    if let Some(verdict) = verdict {
        let page = Page {
            width: columns,
            color: false,
            unicode: shown.look.unicode,
        };
        return text::explain(verdict, &page)
            .lines()
            .map(str::to_owned)
            .collect();
    }
    so_far(shown, columns)
}

fn so_far(shown: &Shown<'_>, columns: usize) -> Vec<String> {
    let live = shown.live;
    let mut lines = Vec::new();
    let mut add = |text: String| lines.extend(wrap(&text, columns));
    add(match shown.state {
        RunState::Running => "The run is in progress. What is known so far:".to_owned(),
        RunState::BetweenAttempts => "The attempt has ended; brimful is still running.".to_owned(),
        RunState::Ended | RunState::CutOff => "The run has ended; there is no verdict.".to_owned(),
    });
    if let Some(forecast) = live.forecast(shown.controls.range) {
        add(format!(
            "Host memory reaches its limit in {}.",
            about(forecast.left_ms)
        ));
    }
    let limit_set_by = live
        .attempt()
        .and_then(|attempt| attempt.limit_set_by.as_ref());
    if let (Some(host), Some(set_by)) = (live.host(), limit_set_by) {
        add(format!("The limit of {} is set by {set_by}.", host.limit));
    }
    let mut n_alarms = 0;
    for event in live.events() {
        n_alarms += usize::from(matches!(event.kind, EventKind::Alarm { .. }));
        add(format!("{}: {}", time(event.at_ms), message(&event.kind)));
    }
    if n_alarms == 0 {
        add("No alarm so far.".to_owned());
    }
    add(format!(
        "Run `brimful explain {}` when it has ended.",
        live.id()
    ));
    lines
}
