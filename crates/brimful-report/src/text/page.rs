//! What a terminal page is laid out with: width, color, and the characters it may use.

use anstyle::{AnsiColor, Style};
use brimful::printable::is_printable;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How a page may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Columns of a line at the most.
    pub width: usize,
    pub color: bool,
    /// Block characters and dots; plain ASCII otherwise.
    pub unicode: bool,
}

/// What a piece of text is, for its color. Everything stays clear without color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Heading,
    Label,
    Strong,
    Fatal,
    Risk,
    Note,
    Command,
}

impl Page {
    /// A page without color, with block characters.
    pub fn plain(width: usize) -> Page {
        Page {
            width,
            color: false,
            unicode: true,
        }
    }

    pub(super) fn paint(&self, role: Role, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let style = match role {
            Role::Heading | Role::Strong => Style::new().bold(),
            Role::Label => Style::new().dimmed(),
            Role::Fatal => AnsiColor::Red.on_default().bold(),
            Role::Risk => AnsiColor::Yellow.on_default().bold(),
            Role::Note => AnsiColor::Cyan.on_default().bold(),
            Role::Command => AnsiColor::Green.on_default(),
        };
        format!("{style}{text}{style:#}")
    }

    /// The same, filled up to `width` columns.
    pub(super) fn paint_padded(&self, role: Role, text: &str, width: usize) -> String {
        let pad = " ".repeat(width.saturating_sub(width_of(text)));
        format!("{}{pad}", self.paint(role, text))
    }

    /// A bar of `cells` columns, `share` of it full.
    pub(super) fn bar(&self, share: f64, cells: usize) -> String {
        let share = if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            0.0
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the number of cells"
        )]
        let mut full = (share * cells as f64).round() as usize;
        // A little is not nothing, and nearly full is not full.
        if share > 0.0 {
            full = full.max(1);
        }
        if share < 1.0 {
            full = full.min(cells.saturating_sub(1));
        }
        let (on, off) = if self.unicode {
            ("█", "░")
        } else {
            ("#", ".")
        };
        format!("{}{}", on.repeat(full), off.repeat(cells - full))
    }

    /// A heading and what stands below it; nothing where there is nothing to say.
    pub(super) fn section(&self, out: &mut String, heading: &str, body: &str) {
        if !body.is_empty() {
            out.push('\n');
            out.push_str(&self.paint(Role::Heading, heading));
            out.push('\n');
            out.push_str(body);
        }
    }

    /// Separates parts of a line.
    pub(super) fn dot(&self) -> &'static str {
        if self.unicode { " · " } else { ", " }
    }

    /// Text after `lead`, wrapped to the page, further lines indented to where the text began.
    ///
    /// `lead` may hold color; `lead_width` is what it takes on the screen.
    pub(super) fn hang(&self, lead: &str, lead_width: usize, text: &str) -> String {
        let lines = wrap(text, self.width.saturating_sub(lead_width).max(20));
        let indent = " ".repeat(lead_width);
        let mut out = String::new();
        for (idx, line) in lines.iter().enumerate() {
            out.push_str(if idx == 0 { lead } else { &indent });
            out.push_str(line);
            out.push('\n');
        }
        out
    }

    /// Marks what stands between backticks as something to type.
    pub(super) fn commands(&self, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let pieces: Vec<&str> = text.split('`').collect();
        if pieces.len().is_multiple_of(2) {
            return text.to_owned();
        }
        pieces
            .iter()
            .enumerate()
            .map(|(idx, piece)| {
                if idx % 2 == 0 {
                    (*piece).to_owned()
                } else {
                    self.paint(Role::Command, &format!("`{piece}`"))
                }
            })
            .collect()
    }
}

/// Columns that a piece of plain text takes.
pub(super) fn width_of(text: &str) -> usize {
    text.width()
}

/// Breaks text into lines of at most `width` columns, at blanks, and inside of words only where one is longer.
///
/// Control characters are dropped: what is shown may come from files of a hostile machine.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let clean: String = text
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| is_printable(*c))
        .collect();
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in words(&clean) {
        let gap = usize::from(!line.is_empty());
        if line.width() + gap + word.width() <= width {
            if gap == 1 {
                line.push(' ');
            }
            line.push_str(&word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            if line.width() + c.width().unwrap_or(0) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// The words of a text, with a number and its unit as one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let is_unit = ["B", "KiB", "MiB", "GiB", "TiB", "%", "s"]
            .iter()
            .any(|unit| {
                word.strip_prefix(unit)
                    .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            });
        match words.last_mut() {
            Some(last) if is_unit && last.ends_with(|c: char| c.is_ascii_digit()) => {
                last.push(' ');
                last.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_keeps_its_unit() {
        assert_eq!(
            wrap("about 12 GiB, or 5 % of it", 12),
            ["about", "12 GiB, or", "5 % of it"]
        );
    }

    #[test]
    fn what_steers_a_terminal_is_dropped() {
        assert_eq!(wrap("a\u{202e}b\u{1b}[1m\u{2066}c", 20), ["ab[1mc"]);
    }

    #[test]
    fn long_words_are_broken_and_short_ones_are_not() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("", 10), [""]);
    }

    #[test]
    fn escape_sequences_of_others_do_not_reach_the_terminal() {
        assert_eq!(wrap("a\u{1b}[31mred\u{7}", 40), ["a[31mred"]);
    }

    #[test]
    fn bars_show_a_little_and_keep_room_for_the_rest() {
        let page = Page::plain(80);
        assert_eq!(page.bar(0.0, 4), "░░░░");
        assert_eq!(page.bar(0.001, 4), "█░░░");
        assert_eq!(page.bar(0.999, 4), "███░");
        assert_eq!(page.bar(1.0, 4), "████");
        assert_eq!(page.bar(f64::NAN, 4), "░░░░");
    }
}
