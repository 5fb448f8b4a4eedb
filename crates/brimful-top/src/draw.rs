//! One frame.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::controls::FullPage;
use crate::explained::{explanation, help};
use crate::frame::PanelKind;
use crate::layout::draw_panels;
use crate::look::Tone;
use crate::shown::Shown;
use crate::status::status_line;

/// Terminals with less show one line.
const MIN_COLUMNS: u16 = 60;
const MIN_ROWS: u16 = 12;

/// Draws everything.
pub(crate) fn draw(shown: &Shown<'_>, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    if area.width < MIN_COLUMNS || area.height < MIN_ROWS {
        let line = status_line(shown, usize::from(area.width));
        buffer.set_line(area.x, area.y, &line, area.width);
    } else {
        match page_lines(shown, usize::from(area.width)) {
            Some(lines) => draw_page(shown, &lines, area, buffer),
            None => draw_panels(shown, area, buffer),
        }
    }
    shown.look.finish(buffer);
}

/// Rows that can be scrolled through at present.
pub(crate) fn n_scrollable(shown: &Shown<'_>, columns: usize) -> usize {
    if let Some(lines) = page_lines(shown, columns) {
        return lines.len();
    }
    match shown.controls.focus {
        Some(PanelKind::Processes) => shown.live.processes(shown.controls.range).len(),
        Some(PanelKind::Alarms) => shown.live.events().len(),
        _ => 0,
    }
}

fn page_lines(shown: &Shown<'_>, columns: usize) -> Option<Vec<String>> {
    // Long lines are hard to read, however wide the terminal.
    let columns = columns.min(100);
    Some(match shown.controls.page? {
        FullPage::Explain => explanation(shown, columns),
        FullPage::Help => help(columns),
    })
}

fn draw_page(shown: &Shown<'_>, lines: &[String], area: Rect, buffer: &mut Buffer) {
    let rows = usize::from(area.height - 1);
    let from = shown.controls.scroll.min(lines.len().saturating_sub(rows));
    let plain = shown.look.style(Tone::Plain);
    for (y, line) in (area.y..).zip(lines[from..].iter().take(rows)) {
        buffer.set_stringn(area.x, y, line, usize::from(area.width), plain);
    }
    let n_below = lines.len().saturating_sub(from + rows);
    let more = match n_below {
        0 => String::new(),
        n => format!(" · {n} more lines below"),
    };
    let footer = format!("Esc back · q quit{more}");
    let y = area.bottom() - 1;
    buffer.set_stringn(
        area.x,
        y,
        footer,
        usize::from(area.width),
        shown.look.style(Tone::Faint),
    );
}
