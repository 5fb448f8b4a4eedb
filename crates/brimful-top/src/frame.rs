//! Panels below each other in one frame.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use crate::look::{Look, Tone};
use crate::words::cut;

/// What a panel is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanelKind {
    End,
    Host,
    Gpu,
    Shm,
    Processes,
    Alarms,
    Progress,
}

/// Draws the body of a panel of this width and height.
type Body<'a> = Box<dyn Fn(usize, usize) -> Vec<Line<'static>> + 'a>;

/// A titled part of a frame.
pub(crate) struct Panel<'a> {
    pub(crate) kind: PanelKind,
    pub(crate) title: String,
    pub(crate) tone: Tone,
    /// Values at the right of the title, most important first.
    pub(crate) values: Vec<String>,
    /// Rows below its title: with fewer it is left out, with more it shows nothing new.
    pub(crate) min_rows: usize,
    pub(crate) wanted_rows: usize,
    /// A curve that is better the higher it is.
    pub(crate) can_grow: bool,
    pub(crate) body: Body<'a>,
}

/// The order in which panels get the rows that they cannot do without.
const NEEDS: [PanelKind; 7] = [
    PanelKind::End,
    PanelKind::Host,
    PanelKind::Gpu,
    PanelKind::Alarms,
    PanelKind::Progress,
    PanelKind::Processes,
    PanelKind::Shm,
];

/// The order in which they get more.
const WISHES: [PanelKind; 7] = [
    PanelKind::End,
    PanelKind::Host,
    PanelKind::Gpu,
    PanelKind::Progress,
    PanelKind::Processes,
    PanelKind::Alarms,
    PanelKind::Shm,
];

/// Rows below the title of each panel in a frame of this height; `None` for one that is left out.
pub(crate) fn rows_of(
    panels: &[Panel<'_>],
    height: usize,
    focus: Option<PanelKind>,
) -> Vec<Option<usize>> {
    let mut rows: Vec<Option<usize>> = vec![None; panels.len()];
    // The last line of the frame.
    let mut left = height.saturating_sub(1);
    let panels_of =
        |kind: PanelKind| (0..panels.len()).filter(move |idx| panels[*idx].kind == kind);
    for idx in NEEDS.into_iter().flat_map(panels_of) {
        let needed = 1 + panels[idx].min_rows;
        if needed <= left {
            rows[idx] = Some(panels[idx].min_rows);
            left -= needed;
        }
    }
    for idx in focus.into_iter().chain(WISHES).flat_map(panels_of) {
        if let Some(given) = &mut rows[idx] {
            let more = panels[idx].wanted_rows.saturating_sub(*given).min(left);
            *given += more;
            left -= more;
        }
    }
    let growing: Vec<usize> = (0..panels.len())
        .filter(|idx| panels[*idx].can_grow && rows[*idx].is_some())
        .collect();
    for (nth, idx) in growing.iter().enumerate() {
        let share = left / (growing.len() - nth);
        rows[*idx] = rows[*idx].map(|given| given + share);
        left -= share;
    }
    if let Some(last) = rows.iter_mut().rev().flatten().next() {
        *last += left;
    }
    rows
}

/// Draws the panels that fit, and a last line with `footer` in it.
pub(crate) fn draw_frame(
    buffer: &mut Buffer,
    area: Rect,
    panels: &[Panel<'_>],
    focus: Option<PanelKind>,
    footer: &Line<'_>,
    look: Look,
) {
    if area.width < 4 || area.height < 2 {
        return;
    }
    let inner = usize::from(area.width) - 4;
    let line = look.style(Tone::Faint);
    let mut y = area.y;
    let given = rows_of(panels, usize::from(area.height), focus);
    for (panel, rows) in panels.iter().zip(given) {
        let Some(rows) = rows else { continue };
        let corners = if y == area.y {
            ('┌', '┐')
        } else {
            ('├', '┤')
        };
        rule(buffer, area, y, corners, look);
        let tone = if focus == Some(panel.kind) {
            Tone::Chosen
        } else {
            panel.tone
        };
        let title = format!(" {} ", cut(&panel.title, inner));
        buffer.set_stringn(area.x + 1, y, &title, inner + 2, look.style(tone));
        let values = fitting(&panel.values, inner.saturating_sub(title.width() + 1));
        if !values.is_empty() {
            let text = format!(" {values} ");
            let x = area.right() - 1 - columns(text.width());
            buffer.set_stringn(x, y, &text, text.width(), look.style(Tone::Plain));
        }
        y += 1;
        let mut lines = (panel.body)(inner, rows).into_iter();
        for _ in 0..rows {
            if y >= area.bottom() {
                break;
            }
            buffer.set_string(area.x, y, "│", line);
            buffer.set_string(area.right() - 1, y, "│", line);
            if let Some(text) = lines.next() {
                buffer.set_line(area.x + 2, y, &text, columns(inner));
            }
            y += 1;
        }
    }
    if y < area.bottom() {
        rule(buffer, area, y, ('└', '┘'), look);
        let width = columns(footer.width().min(inner + 2));
        buffer.set_line(area.x + 1, y, footer, width);
    }
}

fn rule(buffer: &mut Buffer, area: Rect, y: u16, corners: (char, char), look: Look) {
    let middle = "─".repeat(usize::from(area.width) - 2);
    let text = format!("{}{middle}{}", corners.0, corners.1);
    buffer.set_string(area.x, y, text, look.style(Tone::Faint));
}

/// The first values that fit into this width, joined; the first one cut if it alone does not.
fn fitting(values: &[String], room: usize) -> String {
    let joined = (1..=values.len())
        .rev()
        .map(|n| values[..n].join(" · "))
        .find(|text| text.width() < room);
    joined
        .or_else(|| Some(cut(values.first()?, room.saturating_sub(1))))
        .unwrap_or_default()
}

fn columns(width: usize) -> u16 {
    u16::try_from(width).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(
        kind: PanelKind,
        min_rows: usize,
        wanted_rows: usize,
        can_grow: bool,
    ) -> Panel<'static> {
        Panel {
            kind,
            title: String::new(),
            tone: Tone::Plain,
            values: Vec::new(),
            min_rows,
            wanted_rows,
            can_grow,
            body: Box::new(|_, _| Vec::new()),
        }
    }

    fn check(height: usize, focus: Option<PanelKind>, expected: [Option<usize>; 4]) {
        let panels = [
            panel(PanelKind::Host, 2, 3, true),
            panel(PanelKind::Shm, 1, 1, false),
            panel(PanelKind::Processes, 2, 9, false),
            panel(PanelKind::Alarms, 1, 6, false),
        ];
        let rows = rows_of(&panels, height, focus);
        assert_eq!(rows, expected, "{height}");
        let n_rows: usize = rows.iter().flatten().map(|rows| rows + 1).sum();
        assert!(n_rows < height.max(1), "{height}");
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_what_is_left_goes_to_the_curve() {
        check(0, None, [None; 4]);
        check(4, None, [Some(2), None, None, None]);
        check(6, None, [Some(2), None, None, Some(1)]);
        check(11, None, [Some(2), Some(1), Some(2), Some(1)]);
        check(14, None, [Some(3), Some(1), Some(4), Some(1)]);
        check(
            14,
            Some(PanelKind::Processes),
            [Some(2), Some(1), Some(5), Some(1)],
        );
        check(40, None, [Some(19), Some(1), Some(9), Some(6)]);
    }
}
