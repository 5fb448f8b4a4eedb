//! The list of runs.

use brimful::units::Bytes;

use crate::json::RunSummary;
use crate::text::page::Page;
use crate::text::run::{duration, signal_name};
use crate::text::table::table;

/// One line per run, newest first.
pub fn runs(state_dir: &str, runs: &[RunSummary], page: &Page) -> String {
    if runs.is_empty() {
        return format!("no run has been recorded in {state_dir}\n");
    }
    let rows: Vec<Vec<String>> = runs.iter().map(|run| row(run, page)).collect();
    table(
        page,
        &["run", "ended", "ran", "host peak", "command"],
        &rows,
    )
}

fn row(run: &RunSummary, page: &Page) -> Vec<String> {
    let ended = match (run.state.as_str(), run.exit_code, run.signal) {
        ("failed", Some(code), _) => match &run.cause {
            Some(cause) if cause != "not_memory" => cause.clone(),
            _ => format!("exit code {code}"),
        },
        ("killed", _, Some(signal)) => match &run.cause {
            Some(cause) if cause != "not_memory" => cause.clone(),
            _ => signal_name(signal),
        },
        (state, _, _) => state.replace('_', " "),
    };
    let peak = run
        .peak_host_used_bytes
        .map_or_else(|| "-".into(), |bytes| Bytes(bytes).to_string());
    let command = run.command.join(" ");
    // What the other columns leave; the end of a command tells more than its path.
    let room = page.width.saturating_sub(64).max(16);
    let length = command.chars().count();
    let shown: String = if length > room {
        command.chars().skip(length - room).collect()
    } else {
        command
    };
    vec![
        run.id.clone(),
        ended,
        duration(run.duration_ms),
        peak,
        shown,
    ]
}
