//! Colors and characters.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// How the view may look. Everything stays clear without color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub color: bool,
    /// Block and line characters; plain ASCII otherwise.
    pub unicode: bool,
}

/// What a piece of text is, for its color. Red is an end or a critical alarm and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Strong,
    Faint,
    Chosen,
    Host,
    Gpu,
    Shm,
    Note,
    Warning,
    Critical,
}

impl Look {
    pub(crate) fn style(self, tone: Tone) -> Style {
        let (color, modifier) = match tone {
            Tone::Plain => (None, Modifier::empty()),
            Tone::Strong => (None, Modifier::BOLD),
            Tone::Faint => (None, Modifier::DIM),
            Tone::Chosen => (None, Modifier::REVERSED),
            Tone::Host => (Some(Color::Blue), Modifier::empty()),
            Tone::Gpu => (Some(Color::Magenta), Modifier::empty()),
            Tone::Shm | Tone::Note => (Some(Color::Cyan), Modifier::empty()),
            Tone::Warning => (Some(Color::Yellow), Modifier::BOLD),
            Tone::Critical => (Some(Color::Red), Modifier::BOLD),
        };
        let style = Style::new().add_modifier(modifier);
        match color {
            Some(color) if self.color => style.fg(color),
            _ => style,
        }
    }

    /// Replaces what a terminal without UTF-8 cannot show.
    pub(crate) fn finish(self, buffer: &mut Buffer) {
        if self.unicode {
            return;
        }
        for cell in &mut buffer.content {
            let replacement = cell.symbol().chars().next().and_then(ascii);
            if let Some(c) = replacement {
                cell.set_char(c);
            }
        }
    }
}

/// Characters of ours, and the nearest ASCII ones below them.
const DRAWN: &str = "┌┐└┘├┤─│▁▂▃▄▅▆▇█░▒▓·…→←▲◆●";
const ASCII: &str = "++++++-|_.:-=+*#.+=,~><^!*";

/// The nearest ASCII character; `None` for one that is ASCII.
fn ascii(c: char) -> Option<char> {
    if c.is_ascii() {
        return None;
    }
    let found = DRAWN
        .chars()
        .zip(ASCII.chars())
        .find(|(drawn, _)| *drawn == c);
    Some(found.map_or('?', |(_, ascii)| ascii))
}
