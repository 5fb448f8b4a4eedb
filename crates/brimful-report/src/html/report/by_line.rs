//! The view of memory by line of code.

use brimful::secrets::mask_text;
use brimful::units::Bytes;
use serde::Serialize;

use crate::html::report::shown::Shown;
use crate::html::report::time::percent;
use crate::json::{LineMemory, MemoryByLine};

/// Bars that are drawn.
const MAX_LINES: usize = 20;
/// Parts of a path that tell one file from another.
const PATH_PARTS: usize = 3;

/// The lines of code that hold the memory.
#[derive(Debug, Serialize)]
pub(super) struct ByLine {
    title: &'static str,
    about: String,
    lines: Vec<LineBar>,
}

#[derive(Debug, Serialize)]
struct LineBar {
    name: Shown,
    function: Option<Shown>,
    percent: f64,
    color: &'static str,
    words: String,
}

impl ByLine {
    pub(super) fn of(memory: &MemoryByLine) -> ByLine {
        let (title, moment) = if memory.at_failure {
            (
                "Which lines held the memory when it failed",
                "when the last allocation failed",
            )
        } else {
            ("Which lines held the memory at the peak", "at the peak")
        };
        let highest = memory
            .lines
            .iter()
            .map(|line| line.bytes)
            .max()
            .unwrap_or(0);
        let shown = &memory.lines[..memory.lines.len().min(MAX_LINES)];
        let mut lines: Vec<LineBar> = shown.iter().map(|line| bar(line, highest)).collect();
        let in_shown = shown
            .iter()
            .fold(0_u64, |sum, line| sum.saturating_add(line.bytes));
        let others = memory.total_bytes.saturating_sub(in_shown);
        if others > 0 {
            lines.push(LineBar {
                name: Shown::of("other lines"),
                function: None,
                percent: percent(others, highest),
                color: "faint",
                words: Bytes(others).to_string(),
            });
        }
        ByLine {
            title,
            about: format!(
                "{} was in use {moment}. Each line is the innermost one of your own code, or of a library if none of yours was involved.",
                Bytes(memory.total_bytes)
            ),
            lines,
        }
    }
}

fn bar(line: &LineMemory, highest: u64) -> LineBar {
    // Masked before it is cut: a part of a secret would not be found.
    let masked = line.file.as_deref().map(mask_text);
    let name = match (&masked, line.line) {
        (Some(file), Some(number)) => format!("{}:{number}", end_of_path(file)),
        (Some(file), None) => end_of_path(file).to_owned(),
        (None, _) => "before the history, or not Python".to_owned(),
    };
    let plural = if line.allocations == 1 { "" } else { "s" };
    LineBar {
        name: Shown::of(&name),
        function: line.function.as_deref().map(Shown::of),
        percent: percent(line.bytes, highest),
        color: if line.file.is_some() {
            "optimizer"
        } else {
            "faint"
        },
        words: format!(
            "{} in {} allocation{plural}",
            Bytes(line.bytes),
            line.allocations
        ),
    }
}

/// The last parts of a path: the beginning is the same for most lines.
fn end_of_path(path: &str) -> &str {
    let start = path
        .rmatch_indices(['/', '\\'])
        .nth(PATH_PARTS - 1)
        .map_or(0, |(at, _)| at + 1);
    &path[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_end() {
        assert_eq!(
            end_of_path("/home/u/project/src/train.py"),
            "project/src/train.py"
        );
        assert_eq!(end_of_path("train.py"), "train.py");
        assert_eq!(end_of_path("C:\\a\\b\\c\\d.py"), "b\\c\\d.py");
    }
}
