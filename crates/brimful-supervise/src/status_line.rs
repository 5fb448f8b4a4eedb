//! One line at the bottom of the terminal, under whatever the training prints.
//!
//! The terminal is told to scroll only the rows above the last one, as package managers do for their bars. Progress bars
//! of the training work as before in the rows that are left. The line is drawn only between the training's own escape
//! sequences, and not while a program has the whole screen.

use std::fmt::Write as _;

/// Rows that the line takes.
pub(crate) const ROWS: u16 = 1;

/// Where the output of the training stands: inside an escape sequence, a character, or between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Between,
    Escape,
    Sequence,
    /// A title or a link, until its end.
    Text,
    TextEscape,
    /// Bytes of a character still to come.
    Character(u8),
}

/// Follows the output and draws the line into it.
#[derive(Debug, Default)]
pub(crate) struct StatusLine {
    state: EscapeState,
    /// The sequence so far, to know the alternate screen when it comes.
    sequence: Vec<u8>,
    whole_screen: bool,
    /// Rows of the terminal while the line is up.
    up: Option<u16>,
    text: String,
}

impl StatusLine {
    /// Looks at what the training prints.
    pub(crate) fn follow(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    fn step(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (EscapeState::TextEscape, _) | (EscapeState::Text, 0x07) => EscapeState::Between,
            (EscapeState::Text, 0x1b) => EscapeState::TextEscape,
            (EscapeState::Text, _) | (EscapeState::Escape, b']' | b'P' | b'_' | b'^') => {
                EscapeState::Text
            }
            (_, 0x1b) => {
                self.sequence.clear();
                EscapeState::Escape
            }
            (EscapeState::Escape, b'[') => EscapeState::Sequence,
            // Intermediate bytes, as in the choice of a character set, are followed by one more.
            (EscapeState::Escape, 0x20..=0x2f) => EscapeState::Escape,
            (EscapeState::Sequence, 0x40..=0x7e) => {
                self.sequence.push(byte);
                self.end_of_sequence();
                EscapeState::Between
            }
            (EscapeState::Sequence, _) => {
                if self.sequence.len() < 32 {
                    self.sequence.push(byte);
                }
                EscapeState::Sequence
            }
            (EscapeState::Escape, _) => EscapeState::Between,
            (EscapeState::Character(left), 0x80..=0xbf) if left > 1 => {
                EscapeState::Character(left - 1)
            }
            (_, 0xc0..=0xdf) => EscapeState::Character(1),
            (_, 0xe0..=0xef) => EscapeState::Character(2),
            (_, 0xf0..=0xf7) => EscapeState::Character(3),
            (EscapeState::Between | EscapeState::Character(_), _) => EscapeState::Between,
        };
    }

    fn end_of_sequence(&mut self) {
        match self.sequence.as_slice() {
            b"?1049h" | b"?47h" | b"?1047h" => self.whole_screen = true,
            b"?1049l" | b"?47l" | b"?1047l" => self.whole_screen = false,
            _ => {}
        }
    }

    pub(crate) fn set_text(&mut self, text: &str) {
        text.clone_into(&mut self.text);
    }

    /// Whether something of ours may be written now.
    pub(crate) fn is_between(&self) -> bool {
        self.state == EscapeState::Between
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// What to write so that the line shows its text on a terminal of this size; empty where it may not now.
    pub(crate) fn draw(&mut self, rows: u16, columns: u16) -> String {
        if self.state != EscapeState::Between || self.whole_screen || rows < 4 || columns < 20 {
            return String::new();
        }
        let mut out = String::new();
        if self.up != Some(rows) {
            if self.up.is_none() {
                // Makes room below the cursor where it stands on the last row.
                out.push_str("\n\x1b[1A");
            }
            // Setting the region moves the cursor, so its state is kept.
            let _ = write!(out, "\x1b7\x1b[1;{}r\x1b8", rows - ROWS);
            self.up = Some(rows);
        }
        let shown: String = self.text.chars().take(usize::from(columns) - 1).collect();
        let _ = write!(out, "\x1b7\x1b[{rows};1H\x1b[2K{shown}\x1b8");
        out
    }

    /// What to write so that the terminal is as before.
    pub(crate) fn take_down(&mut self) -> String {
        match self.up.take() {
            Some(rows) => reset(rows),
            None => String::new(),
        }
    }
}

/// What gives the whole terminal back, whoever set the line up.
pub(crate) fn reset(rows: u16) -> String {
    format!("\x1b7\x1b[r\x1b[{rows};1H\x1b[2K\x1b8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws_after(bytes: &[u8]) -> bool {
        let mut line = StatusLine::default();
        line.set_text("x");
        line.follow(bytes);
        !line.draw(24, 80).is_empty()
    }

    #[test]
    fn it_is_never_drawn_into_something() {
        assert!(draws_after(b""));
        assert!(draws_after(b"\r  6%|#  | 3/50"));
        assert!(!draws_after(b"\x1b"));
        assert!(!draws_after(b"\x1b[3"));
        assert!(draws_after(b"\x1b[31m"));
        assert!(!draws_after(b"\xe2\x96"));
        assert!(draws_after("█".as_bytes()));
        assert!(!draws_after(b"\x1b]0;title"));
        assert!(draws_after(b"\x1b]0;title\x07"));
        assert!(draws_after(b"\x1b]8;;x\x1b\\"));
        assert!(!draws_after(b"\x1b[?1049h"));
        assert!(draws_after(b"\x1b[?1049h\x1b[?1049l"));
        assert!(draws_after(b"\xff\xfe"));
    }

    #[test]
    fn a_small_terminal_is_left_alone() {
        let mut line = StatusLine::default();
        assert_eq!(line.draw(3, 80), "");
        assert_eq!(line.take_down(), "");
    }
}
