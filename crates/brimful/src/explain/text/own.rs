//! Lines that brimful itself printed. What they say about memory is not evidence about the run.

use crate::explain::Cause;

/// What its single lines begin with.
const NAME: &str = "brimful: ";
/// Headings of a verdict.
const HEADINGS: [&str; 4] = [
    "Attempts",
    "Evidence",
    "What to do, cheapest first",
    "What would confirm it",
];
const CONFIDENCES: [&str; 3] = ["proved", "likely", "cannot tell"];
const LAST_LINE: &str = "Run `brimful explain";
/// A sentence is wrapped no earlier than this.
const MIN_WIDTH: usize = 80;
/// Lines of a verdict's first sentence.
const MAX_SENTENCE_LINES: usize = 6;
/// The first keys of its JSON documents.
const FIRST_KEY: &str = "\"schema_version\":";
const SECOND_KEY: &str = "\"brimful_version\":";

/// Which of these lines are brimful's own. They have no colors and no prefixes of launchers, and are indented as printed.
pub(super) fn own_lines(lines: &[&str]) -> Vec<bool> {
    let mut is_own = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        let end = if lines[at].starts_with(NAME) {
            after_paragraph(lines, at + 1)
        } else if is_verdict(lines[at]) {
            let begin = sentence_begin(lines, at);
            is_own[begin..at].fill(true);
            after_verdict(lines, at + 1)
        } else if is_document(lines, at) {
            after_document(lines, at + 1)
        } else {
            at
        };
        is_own[at..end].fill(true);
        at = end.max(at + 1);
    }
    is_own
}

/// `cuda_oom_exhausted (figures) · proved`
fn is_verdict(line: &str) -> bool {
    let Some(id) = Cause::ALL.iter().find_map(|cause| {
        let rest = line.strip_prefix(cause.id())?;
        (rest.is_empty() || rest.starts_with([' ', ','])).then_some(cause.id())
    }) else {
        return false;
    };
    let mut rest = &line[id.len()..];
    if let Some(detail) = rest.strip_prefix(" (") {
        let Some((_, after)) = detail.split_once(')') else {
            return false;
        };
        rest = after;
    }
    CONFIDENCES.iter().any(|confidence| {
        rest.strip_suffix(confidence)
            .is_some_and(|separator| matches!(separator.trim(), "·" | ","))
    })
}

/// Where the sentence above a verdict's line begins.
fn sentence_begin(lines: &[&str], verdict: usize) -> usize {
    let mut begin = verdict;
    while begin > 0 && verdict - begin < MAX_SENTENCE_LINES {
        let line = lines[begin - 1];
        if line.trim().is_empty() || is_indented(line) || line.starts_with(NAME) {
            break;
        }
        let is_last = begin == verdict;
        let next_word = lines[begin].split(' ').next().unwrap_or_default();
        let is_wrapped = line.chars().count() + 1 + next_word.chars().count() > MIN_WIDTH;
        if !is_last && !is_wrapped {
            break;
        }
        begin -= 1;
    }
    begin
}

fn after_verdict(lines: &[&str], begin: usize) -> usize {
    let mut end = begin;
    for (at, line) in lines.iter().enumerate().skip(begin) {
        if line.trim().is_empty() {
            continue;
        }
        let is_last = line.starts_with(LAST_LINE);
        if !is_last && !is_indented(line) && !HEADINGS.contains(&line.trim_end()) {
            break;
        }
        end = at + 1;
        if is_last {
            break;
        }
    }
    end
}

/// After one line of brimful's: what it is continued with, such as the table of what changed.
fn after_paragraph(lines: &[&str], begin: usize) -> usize {
    let mut end = begin;
    for (at, line) in lines.iter().enumerate().skip(begin) {
        if is_indented(line) {
            end = at + 1;
        } else if !line.trim().is_empty() {
            break;
        }
    }
    end
}

fn is_indented(line: &str) -> bool {
    line.starts_with("  ")
}

/// A JSON document, on one line or indented.
fn is_document(lines: &[&str], at: usize) -> bool {
    let line = lines[at];
    if line.starts_with('{') && line.contains(FIRST_KEY) {
        return line.contains(SECOND_KEY);
    }
    let key_of = |n: usize| lines.get(at + n).map_or("", |line| line.trim_start());
    line.trim_end() == "{" && key_of(1).starts_with(FIRST_KEY) && key_of(2).starts_with(SECOND_KEY)
}

fn after_document(lines: &[&str], begin: usize) -> usize {
    if lines[begin - 1].len() > 1 {
        return begin;
    }
    let close = lines[begin..].iter().position(|line| *line == "}");
    close.map_or(begin, |close| begin + close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(text: &str) -> Vec<&str> {
        let lines: Vec<&str> = text.lines().collect();
        let is_own = own_lines(&lines);
        let left = lines.iter().zip(is_own).filter(|(_, is_own)| !is_own);
        left.map(|(line, _)| *line)
            .filter(|line| !line.is_empty())
            .collect()
    }

    #[test]
    fn a_verdict_is_brimfuls_and_what_was_printed_around_it_is_not() {
        let text = "\
step 7
KeyError: 'x'

brimful: the run was killed by SIGKILL

The process was killed by SIGKILL, and the sender is unknown: the kernel OOM
killer, a scheduler, or a user
ambiguous (sigkill) · cannot tell

Evidence
  exit status   killed by SIGKILL

What would confirm it
  - `dmesg -T | grep -i -E 'killed process|out of memory'` or `journalctl -k`,
    at the time of the kill

Run `brimful explain 2026-11-17T01-37-41-129a` to see this report again
the next line of the script
";
        assert_eq!(
            left(text),
            ["step 7", "KeyError: 'x'", "the next line of the script"]
        );
    }

    #[test]
    fn a_verdict_right_after_the_training() {
        let text = "\
RuntimeError: CUDA out of memory
GPU 0 ran out of memory: an allocation failed
cuda_oom_exhausted (no_figures), likely
";
        assert_eq!(left(text), ["RuntimeError: CUDA out of memory"]);
    }

    #[test]
    fn a_notice_ends_with_its_indented_lines() {
        let text = "\
brimful: attempt 1 of 5 failed: GPU 0 ran out of memory
brimful: starting attempt 2 of 5

  changed      from  to
  micro_batch  8     4

  kept
    resumed from     no checkpoint: starts from the beginning
out of memory
";
        assert_eq!(left(text), ["out of memory"]);
    }

    #[test]
    fn documents_are_brimfuls() {
        let text = "\
{
  \"schema_version\": 1,
  \"brimful_version\": \"0.1.0\",
  \"cause\": \"CUDA out of memory\"
}
{\"schema_version\": 1, \"brimful_version\": \"0.1.0\", \"summary\": \"out of memory\"}
{\"loss\": 1.0}
";
        assert_eq!(left(text), ["{\"loss\": 1.0}"]);
    }

    #[test]
    fn other_programs_lines_stay() {
        for text in [
            "brimful is a tool",
            "not_memory is a label",
            "ambiguous, likely wrong",
            "{",
        ] {
            assert_eq!(left(text), [text]);
        }
    }
}
