//! From what a terminal showed to what can be searched.
//!
//! Programs print the same message in many shapes: wrapped by a terminal or a box, glued to a progress bar, colored,
//! with a rank before every line. So phrases are searched in one long text without any white space and in small
//! letters, in which a wrap leaves no trace; the lines are kept beside it, for what only a line can tell. What brimful
//! itself has printed is left out.

use crate::explain::text::own::own_lines;
use crate::printable::is_printable;

/// What is read of a text: its end. A message longer ago than this is not what ended the process.
const MAX_BYTES: usize = 256 * 1024;
/// A quote is no longer than this.
const MAX_QUOTE_CHARS: usize = 240;

/// A text, cleaned.
#[derive(Clone, Debug, Default)]
pub(in crate::explain) struct Reading {
    /// Without colors, boxes and prefixes of launchers.
    pub(super) lines: Vec<String>,
    /// Everything in small letters, without white space.
    pub(super) flat: String,
    /// Where each line begins in `flat`.
    starts: Vec<usize>,
    /// Lines of brimful's own were left out.
    pub(in crate::explain) has_own_lines: bool,
}

impl Reading {
    pub(in crate::explain) fn new(text: &str) -> Reading {
        let mut lines = vec![String::new()];
        let mut chars = last_bytes(text).chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\n' | '\r' => lines.push(String::new()),
                '\u{1b}' => skip_escape(&mut chars),
                c if !is_printable(c) && c != '\t' || c == '\u{fffd}' => {}
                c => {
                    let line = lines.last_mut().expect("there is always a last line");
                    line.push(if c == '\t' { ' ' } else { c });
                }
            }
        }
        let indented: Vec<&str> = lines.iter().map(|line| without_launcher(line)).collect();
        let mut reading = Reading::default();
        for (line, is_own) in lines.iter().zip(own_lines(&indented)) {
            if is_own {
                reading.has_own_lines = true;
            } else {
                reading.push(line);
            }
        }
        reading
    }

    fn push(&mut self, raw: &str) {
        let line = without_prefixes(without_box(raw)).to_owned();
        if line.is_empty() {
            return;
        }
        self.starts.push(self.flat.len());
        for c in line.chars().filter(|c| !c.is_whitespace()) {
            self.flat.push(c.to_ascii_lowercase());
        }
        self.lines.push(line);
    }

    /// The line that holds this place of `flat`.
    pub(super) fn line_at(&self, at: usize) -> usize {
        self.starts
            .partition_point(|start| *start <= at)
            .saturating_sub(1)
    }

    /// Where a line begins in `flat`.
    pub(super) fn start_of(&self, line: usize) -> usize {
        self.starts.get(line).copied().unwrap_or(self.flat.len())
    }

    /// `flat` from so many bytes before a place to so many after it.
    pub(super) fn around(&self, at: usize, before: usize, after: usize) -> &str {
        let begin = floor(&self.flat, at.saturating_sub(before));
        let end = floor(&self.flat, at.saturating_add(after));
        &self.flat[begin..end]
    }

    /// What stands before a place.
    pub(super) fn before(&self, at: usize, bytes: usize) -> &str {
        self.around(at, bytes, 0)
    }

    /// What stands from a place on.
    pub(super) fn after(&self, at: usize, bytes: usize) -> &str {
        self.around(at, 0, bytes)
    }

    /// Whether the word stands there as one, and not only its letters over several words; or a wrap cuts it.
    pub(super) fn has_word(&self, at: usize, word: &str) -> bool {
        let line = self.line_at(at);
        let is_cut = at + word.len() > self.start_of(line + 1);
        let is_wrapped = || !self.lines[line][self.place_in_line(line, at)..].contains(' ');
        (is_cut && is_wrapped())
            || self.lines.get(line).is_some_and(|line| {
                line.to_ascii_lowercase()
                    .contains(&word.to_ascii_lowercase())
            })
    }

    /// What stands before a place on its own line, as printed.
    pub(super) fn line_before(&self, at: usize) -> &str {
        let line_idx = self.line_at(at);
        let Some(line) = self.lines.get(line_idx) else {
            return "";
        };
        &line[..self.place_in_line(line_idx, at)]
    }

    /// Where in its line a place is.
    fn place_in_line(&self, line_idx: usize, at: usize) -> usize {
        // Counted in what is no white space.
        let n_before = self.flat[self.start_of(line_idx)..floor(&self.flat, at)]
            .chars()
            .count();
        let line = &self.lines[line_idx];
        line.char_indices()
            .filter(|(_, c)| !c.is_whitespace())
            .nth(n_before)
            .map_or(0, |(idx, _)| idx)
    }

    /// The part of a line that matters, for people.
    pub(super) fn quote(&self, at: usize) -> String {
        let line_idx = self.line_at(at);
        let Some(line) = self.lines.get(line_idx) else {
            return String::new();
        };
        if line.len() <= MAX_QUOTE_CHARS {
            return line.clone();
        }
        let begin = floor(line, self.place_in_line(line_idx, at).saturating_sub(40));
        let end = floor(line, begin + MAX_QUOTE_CHARS);
        let mut quote = String::new();
        if begin > 0 {
            quote.push('…');
        }
        quote.push_str(line[begin..end].trim());
        if end < line.len() {
            quote.push('…');
        }
        quote
    }
}

fn last_bytes(text: &str) -> &str {
    let mut begin = text.len().saturating_sub(MAX_BYTES);
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    &text[begin..]
}

/// The nearest place at or before `at` that is no half character.
pub(super) fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// After ESC: `[` to a final letter, `]` to BEL or the next ESC, or one character.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            while let Some(c) = chars.peek() {
                let c = *c;
                if !c.is_ascii() || c == '\n' || c == '\u{1b}' {
                    return;
                }
                chars.next();
                if ('@'..='~').contains(&c) {
                    return;
                }
            }
        }
        Some(']') => {
            while let Some(c) = chars.peek() {
                let c = *c;
                if c == '\n' {
                    return;
                }
                chars.next();
                if c == '\u{7}' {
                    return;
                }
                if c == '\u{1b}' {
                    chars.next();
                    return;
                }
            }
        }
        _ => {}
    }
}

/// Without the frame that rich, tabulated logs and mail quotes draw around a line.
fn without_box(line: &str) -> &str {
    line.trim_matches(|c: char| {
        c.is_whitespace()
            || matches!(c, '|' | '>' | '❱' | '\u{200b}')
            || ('\u{2500}'..='\u{257f}').contains(&c)
    })
}

/// Without a launcher's prefix, and indented as the line was printed.
fn without_launcher(line: &str) -> &str {
    let text = line.trim();
    let rest = without_prefixes(text);
    if rest.len() == text.len() {
        return line;
    }
    // The prefix ends with one space at most that is its own.
    let prefix = line[..line.trim_end().len() - rest.len()].trim_end();
    let indented = &line[prefix.len()..];
    indented.strip_prefix(' ').unwrap_or(indented)
}

/// Without what launchers and loggers put before each line: `[rank0]:`, `[1,3]<stderr>:`, `(Worker pid=7)`, a time.
fn without_prefixes(line: &str) -> &str {
    let mut rest = line;
    for _ in 0..6 {
        let shorter = without_prefix(rest);
        if shorter.len() == rest.len() {
            break;
        }
        rest = shorter;
    }
    rest
}

fn without_prefix(line: &str) -> &str {
    let line = line.trim_start();
    // pytest marks the lines of an error.
    if let Some(rest) = line.strip_prefix("E  ") {
        return rest.trim_start();
    }
    if let Some(rest) = line.strip_prefix('[') {
        if let Some((inside, rest)) = rest.split_once(']') {
            let is_rank = ["rank", "default", "worker"].iter().any(|word| {
                inside.strip_prefix(word).is_some_and(|n| {
                    !n.is_empty()
                        && n.len() < 8
                        && n.bytes()
                            .all(|b| b.is_ascii_digit() || b" :_-".contains(&b))
                })
            });
            let is_mpi = inside.len() < 16
                && inside.contains(',')
                && inside.bytes().all(|b| b.is_ascii_digit() || b == b',');
            if is_rank && rest.starts_with(':') {
                return rest[1..].trim_start();
            }
            if is_mpi && rest.starts_with('<') {
                return rest
                    .split_once('>')
                    .map_or(line, |(_, rest)| rest.trim_start_matches([':', ' ']));
            }
            if is_time(inside) {
                return rest.trim_start();
            }
        }
        return line;
    }
    if let Some(rest) = line.strip_prefix('(')
        && let Some((inside, rest)) = rest.split_once(')')
        && inside.len() < 120
        && inside.contains("pid=")
    {
        return rest.trim_start();
    }
    match time_length(line) {
        0 => line,
        length => line[length..].trim_start(),
    }
}

fn is_time(text: &str) -> bool {
    let length = time_length(text);
    length > 0 && text.len() - length < 8
}

/// Length of a date and time, or a time, at the beginning: `2024-11-28 13:24:44,248`, `13:24:44.248Z`; 0 for none.
fn time_length(text: &str) -> usize {
    let length = text
        .bytes()
        .take(40)
        .take_while(|b| b.is_ascii_digit() || b" -:/.,TZ+".contains(b))
        .count();
    let candidate = text[..length].trim_end_matches(|c: char| !c.is_ascii_digit() && c != 'Z');
    let n_colons = candidate.bytes().filter(|b| *b == b':').count();
    if (2..=3).contains(&n_colons) && candidate.len() >= 8 {
        candidate.len()
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, flat: &str) {
        assert_eq!(Reading::new(text).flat, flat, "{text:?}");
    }

    #[test]
    fn wraps_colors_and_boxes_leave_no_trace() {
        check("CUDA out of mem\nory", "cudaoutofmemory");
        check("\u{1b}[31mCUDA\u{1b}[0m out\tof memory", "cudaoutofmemory");
        check("│ CUDA out of   │\n│ memory        │", "cudaoutofmemory");
        check("\u{1b}]0;title\u{7}Killed", "killed");
    }

    #[test]
    fn a_rank_before_every_line_is_no_part_of_the_message() {
        check("[rank3]: out of\n[rank3]: memory", "outofmemory");
        check("[1,3]<stderr>:out of\n[1,3]<stderr>:memory", "outofmemory");
        check("(Trainer pid=71) out of memory", "outofmemory");
        check("2026-01-02 03:04:05,678 out of memory", "outofmemory");
        check("[2026-01-02 03:04:05,678] out of memory", "outofmemory");
    }

    #[test]
    fn what_looks_like_a_prefix_and_is_none_stays() {
        check("[enforce fail]", "[enforcefail]");
        check("12:30", "12:30");
        check("(GPU 0)", "(gpu0)");
    }

    #[test]
    fn only_the_end_of_a_long_text_is_read() {
        let text = format!("é{}the end", "x".repeat(2 * MAX_BYTES));
        let reading = Reading::new(&text);
        assert!(reading.flat.len() <= MAX_BYTES);
        assert!(reading.flat.ends_with("theend"));
    }

    #[test]
    fn a_quote_shows_the_place_in_a_long_line() {
        let text = format!("{} needle in it {}", "hay ".repeat(200), "hay ".repeat(200));
        let reading = Reading::new(&text);
        let quote = reading.quote(reading.flat.find("needle").unwrap());
        assert!(quote.contains("needle in it"), "{quote}");
        assert!(quote.len() < 300);
    }
}
