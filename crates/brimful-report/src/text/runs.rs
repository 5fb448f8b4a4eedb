//! The list of runs.

use brimful::printable::is_printable;
use brimful::units::Bytes;

use crate::json::RunSummary;
use crate::text::page::{Page, width_of};
use crate::text::run::{duration, signal_name};
use crate::text::table::table;

/// Room for a command that is worth showing.
const LEAST_COMMAND: usize = 16;

/// One line per run, newest first.
pub fn runs(state_dir: &str, runs: &[RunSummary], page: &Page) -> String {
    if runs.is_empty() {
        return page.hang("", 0, &format!("no runs recorded in {state_dir}"));
    }
    let rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let figures = table(page, &["run", "outcome", "duration", "host peak"], &rows);
    let widest = figures.lines().skip(1).map(width_of).max().unwrap_or(0);
    let room = page.width.saturating_sub(widest + 2).max(LEAST_COMMAND);
    let mut out = String::new();
    for (idx, line) in figures.lines().enumerate() {
        out.push_str(line);
        // The first line is the heading.
        if let Some(run) = idx.checked_sub(1).and_then(|idx| runs.get(idx)) {
            let pad = widest.saturating_sub(width_of(line)) + 2;
            out.push_str(&" ".repeat(pad));
            out.push_str(&shortened(&run.command.join(" "), room, page));
        }
        out.push('\n');
    }
    out
}

fn row(run: &RunSummary) -> Vec<String> {
    let ended = match (run.state.as_str(), run.exit_code, run.signal, &run.cause) {
        ("failed" | "killed" | "cut_off", _, _, Some(cause))
            if !matches!(cause.as_str(), "not_memory" | "ambiguous") =>
        {
            cause.clone()
        }
        ("failed", Some(code), _, _) => format!("exit code {code}"),
        ("killed", _, Some(signal), _) => signal_name(signal),
        (state, _, _, _) => state.replace('_', " "),
    };
    let ended = match run.n_attempts {
        0 | 1 => ended,
        n => format!("{ended}, attempt {n}"),
    };
    let peak = run
        .peak_host_used_bytes
        .map_or_else(|| "-".into(), |bytes| Bytes(bytes).to_string());
    vec![run.id.clone(), ended, duration(run.duration_ms), peak]
}

/// A command in so much room. Its end tells more than the path of its interpreter.
fn shortened(command: &str, room: usize, page: &Page) -> String {
    let command: String = command
        .chars()
        .map(|c| if is_printable(c) { c } else { ' ' })
        .collect();
    let length = command.chars().count();
    if length <= room {
        return command;
    }
    let mark = if page.unicode { "…" } else { "~" };
    let kept: String = command.chars().skip(length - (room - 1)).collect();
    format!("{mark}{kept}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, state: &str, cause: Option<&str>, command: &str) -> RunSummary {
        RunSummary {
            id: id.into(),
            started_at_unix_ms: 0,
            command: vec![command.into()],
            folder: String::new(),
            state: state.into(),
            exit_code: Some(1),
            signal: None,
            n_attempts: 1,
            duration_ms: 65_000,
            peak_host_used_bytes: Some(7 << 30),
            host_limit_bytes: None,
            cause: cause.map(Into::into),
            summary: None,
            host_used_sparkline: Vec::new(),
        }
    }

    #[test]
    fn a_line_fits_and_says_what_matters() {
        let page = Page::plain(80);
        let text = runs(
            "/state",
            &[
                run(
                    "a",
                    "failed",
                    Some("shm_exhausted"),
                    "python train.py\n\u{1b}[31m",
                ),
                run("b", "failed", Some("not_memory"), &"x".repeat(200)),
            ],
            &page,
        );
        assert!(text.contains("shm_exhausted"), "{text}");
        assert!(!text.contains("attempt"), "{text}");
        assert!(text.contains("exit code 1"), "{text}");
        assert!(!text.contains('\u{1b}'));
        for line in text.lines() {
            assert!(width_of(line) <= 80, "{line}");
        }
    }

    #[test]
    fn a_run_that_came_back_says_how_often() {
        let mut back = run("a", "finished", None, "python train.py");
        back.n_attempts = 3;
        let text = runs("/state", &[back], &Page::plain(80));
        assert!(text.contains("finished, attempt 3"), "{text}");
    }
}
