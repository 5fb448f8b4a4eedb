//! One frame as text, for scripts.

use anstyle::{AnsiColor, Style};
use brimful::live::LiveRun;
use brimful_supervise::{AttachedRun, Followed};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

use crate::controls::Controls;
use crate::draw::draw;
use crate::error::TopError;
use crate::look::Look;
use crate::shown::{RunState, Shown};

/// Columns and rows of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSize {
    pub columns: u16,
    pub rows: u16,
}

/// The view of a run at this moment, as lines of text. Escape codes are in it only if the look has color.
pub fn once(attached: &AttachedRun, size: FrameSize, look: Look) -> Result<String, TopError> {
    let mut live = LiveRun::default();
    let read = attached.follow().poll(|followed| match followed {
        Followed::Restarted => live = LiveRun::default(),
        Followed::Line(next) => live.take(*next),
    });
    read.map_err(TopError::Read)?;
    TopError::check(attached, &live)?;
    let shown = Shown {
        live: &live,
        state: RunState::of(&live, attached.is_running()),
        quiet_seconds: None,
        verdict: None,
        controls: Controls::default(),
        is_interactive: false,
        look,
    };
    Ok(frame(&shown, size))
}

/// One frame as text.
pub(crate) fn frame(shown: &Shown<'_>, size: FrameSize) -> String {
    let area = Rect::new(0, 0, size.columns, size.rows);
    let mut buffer = Buffer::empty(area);
    draw(shown, area, &mut buffer);
    let mut text = String::new();
    for y in 0..size.rows {
        text.push_str(&row(&buffer, y, shown.look));
        text.push('\n');
    }
    // A status line has no rows below it.
    text.truncate(text.trim_end_matches('\n').len());
    text.push('\n');
    text
}

fn row(buffer: &Buffer, y: u16, look: Look) -> String {
    let mut text = String::new();
    let mut styled = Style::new();
    let mut n_covered = 0;
    for x in 0..buffer.area.width {
        let cell = &buffer[(x, y)];
        // The cell after a wide character belongs to it.
        if n_covered > 0 {
            n_covered -= 1;
            continue;
        }
        n_covered = cell.symbol().width().saturating_sub(1);
        if look.color && style(cell) != styled {
            text.push_str(&styled.render_reset().to_string());
            styled = style(cell);
            text.push_str(&styled.render().to_string());
        }
        text.push_str(cell.symbol());
    }
    text.push_str(&styled.render_reset().to_string());
    if look.color {
        text
    } else {
        text.trim_end().to_owned()
    }
}

fn style(cell: &Cell) -> Style {
    let color = match cell.fg {
        Color::Red => Some(AnsiColor::Red),
        Color::Yellow => Some(AnsiColor::Yellow),
        Color::Blue => Some(AnsiColor::Blue),
        Color::Magenta => Some(AnsiColor::Magenta),
        Color::Cyan => Some(AnsiColor::Cyan),
        _ => None,
    };
    let mut style = Style::new().fg_color(color.map(Into::into));
    if cell.modifier.contains(Modifier::BOLD) {
        style = style.bold();
    }
    if cell.modifier.contains(Modifier::DIM) {
        style = style.dimmed();
    }
    style
}
