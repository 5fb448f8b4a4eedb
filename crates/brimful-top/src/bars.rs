//! Bars and curves of block characters.

use brimful::units::rounded;
use ratatui::text::{Line, Span};

use crate::look::{Look, Tone};

/// The levels of one cell, lowest first.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One part of a bar: its share of the whole, and the character it is drawn with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) share: f64,
    pub(crate) character: char,
    pub(crate) tone: Tone,
}

/// A bar of `columns` columns; what the parts leave is empty.
pub(crate) fn bar(parts: &[Part], columns: usize, look: Look) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    let mut n_drawn = 0;
    let mut sum = 0.0;
    for part in parts {
        let share = known_share(part.share);
        sum += share;
        let mut until = cells(sum, columns);
        // A little is not nothing, and nearly full is not full.
        if share > 0.0 {
            until = until.max(n_drawn + 1).min(columns);
        }
        if sum < 1.0 && columns > 1 {
            until = until.min(columns - 1);
        }
        if until > n_drawn {
            let text = part.character.to_string().repeat(until - n_drawn);
            spans.push(Span::styled(text, look.style(part.tone)));
            n_drawn = until;
        }
    }
    let empty = "░".repeat(columns.saturating_sub(n_drawn));
    spans.push(Span::styled(empty, look.style(Tone::Faint)));
    spans
}

/// A curve of the given number of rows, highest first; the top is `max`. `None` leaves a cell empty.
pub(crate) fn curve(
    values: &[Option<u64>],
    max: u64,
    rows: usize,
    tone: Tone,
    look: Look,
) -> Vec<Line<'static>> {
    let n_levels = LEVELS.len() * rows;
    let levels: Vec<Option<usize>> = values
        .iter()
        .map(|value| {
            let share = known_share((*value)? as f64 / max.max(1) as f64);
            Some(cells(share, n_levels).max(1))
        })
        .collect();
    (0..rows)
        .map(|row| {
            let below = (rows - 1 - row) * LEVELS.len();
            let text: String = levels
                .iter()
                .map(|level| match level {
                    Some(level) if *level > below => {
                        LEVELS[(*level - below - 1).min(LEVELS.len() - 1)]
                    }
                    _ => ' ',
                })
                .collect();
            Line::from(Span::styled(text, look.style(tone)))
        })
        .collect()
}

fn known_share(share: f64) -> f64 {
    if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    }
}

fn cells(share: f64, n: usize) -> usize {
    usize::try_from(rounded(known_share(share) * n as f64)).map_or(n, |cells| cells.min(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look {
        color: false,
        unicode: true,
    };

    fn drawn(shares: &[f64], columns: usize) -> String {
        let characters = ['█', '▒', '▓'];
        let parts: Vec<Part> = shares
            .iter()
            .zip(characters)
            .map(|(share, character)| Part {
                share: *share,
                character,
                tone: Tone::Gpu,
            })
            .collect();
        bar(&parts, columns, LOOK)
            .iter()
            .map(|span| span.content.as_ref())
            .collect()
    }

    #[test]
    fn a_bar_has_its_parts_and_no_more_columns() {
        assert_eq!(drawn(&[0.5, 0.25], 8), "████▒▒░░");
        assert_eq!(drawn(&[0.001, 0.0], 4), "█░░░");
        assert_eq!(drawn(&[0.999], 4), "███░");
        assert_eq!(drawn(&[1.0], 4), "████");
        assert_eq!(drawn(&[0.6, 0.9, 0.3], 4), "██▒▒");
        assert_eq!(drawn(&[f64::NAN, -1.0], 2), "░░");
        assert_eq!(drawn(&[0.5, 0.3], 0), "");
    }

    #[test]
    fn a_curve_is_as_high_as_its_rows() {
        let rows = curve(
            &[Some(0), Some(50), None, Some(100)],
            100,
            2,
            Tone::Host,
            LOOK,
        );
        let text: Vec<String> = rows.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["   █", "▁█ █"]);
        assert_eq!(
            curve(&[Some(1)], 0, 1, Tone::Host, LOOK)[0].to_string(),
            "█"
        );
    }
}
