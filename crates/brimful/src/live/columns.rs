//! The history of one value in columns that keep the highest value.

use std::collections::VecDeque;

use crate::watch::Trend;

/// Columns of one range. The widest terminals have about twice as many cells, of which two then share a column.
const N_COLUMNS: usize = 240;
/// The first width of a column of the whole run; it doubles whenever there are too many.
const FIRST_WIDTH_MS: u64 = 250;
/// Points that a slope is computed from.
const N_POINTS: usize = 24;

/// How far back a curve reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeRange {
    Minute,
    #[default]
    TenMinutes,
    Hour,
    /// Since the run began.
    All,
}

impl TimeRange {
    pub const ALL: [TimeRange; 4] = [
        TimeRange::Minute,
        TimeRange::TenMinutes,
        TimeRange::Hour,
        TimeRange::All,
    ];

    /// `None` for the whole run.
    pub const fn span_ms(self) -> Option<u64> {
        match self {
            TimeRange::Minute => Some(60_000),
            TimeRange::TenMinutes => Some(600_000),
            TimeRange::Hour => Some(3_600_000),
            TimeRange::All => None,
        }
    }

    /// The next longer range, or this one if there is none.
    pub const fn longer(self) -> TimeRange {
        match self {
            TimeRange::Minute => TimeRange::TenMinutes,
            TimeRange::TenMinutes => TimeRange::Hour,
            TimeRange::Hour | TimeRange::All => TimeRange::All,
        }
    }

    /// The next shorter range, or this one if there is none.
    pub const fn shorter(self) -> TimeRange {
        match self {
            TimeRange::Minute | TimeRange::TenMinutes => TimeRange::Minute,
            TimeRange::Hour => TimeRange::TenMinutes,
            TimeRange::All => TimeRange::Hour,
        }
    }
}

/// One value over time: for each range a fixed number of columns, each with the highest value of its time.
///
/// ```
/// use brimful::live::{PeakColumns, TimeRange};
///
/// let mut columns = PeakColumns::default();
/// for second in 0..600 {
///     columns.push(second * 1000, if second == 300 { 90 } else { 10 });
/// }
/// let shown = columns.cells(TimeRange::TenMinutes, 6);
/// assert_eq!(shown, [Some(10), Some(10), Some(10), Some(90), Some(10), Some(10)]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakColumns {
    rings: [Ring; 4],
    first_ms: Option<u64>,
    now_ms: u64,
    /// The next value does not continue the last one.
    is_interrupted: bool,
}

impl Default for PeakColumns {
    fn default() -> PeakColumns {
        let ring = |range: TimeRange| Ring {
            width_ms: range
                .span_ms()
                .map_or(FIRST_WIDTH_MS, |span| span / N_COLUMNS as u64),
            keeps_all: range.span_ms().is_none(),
            columns: VecDeque::new(),
        };
        PeakColumns {
            rings: TimeRange::ALL.map(ring),
            first_ms: None,
            now_ms: 0,
            is_interrupted: false,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ring {
    width_ms: u64,
    keeps_all: bool,
    columns: VecDeque<Column>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column {
    /// Its time divided by the width of a column.
    number: u64,
    peak: u64,
    /// Nothing is known of the time between the column before and this one.
    follows_gap: bool,
}

impl PeakColumns {
    /// Adds a value. A time before the last one counts as that one.
    pub fn push(&mut self, at_ms: u64, value: u64) {
        self.now_ms = self.now_ms.max(at_ms);
        self.first_ms.get_or_insert(self.now_ms);
        for ring in &mut self.rings {
            ring.push(self.now_ms, value, self.is_interrupted);
        }
        self.is_interrupted = false;
    }

    /// Nothing is known from the last value to the next one.
    pub fn interrupt(&mut self) {
        self.is_interrupted = true;
    }

    /// Milliseconds that the curve of a range covers: the range, or less if the run is younger.
    pub fn span_ms(&self, range: TimeRange) -> u64 {
        let age = self
            .now_ms
            .saturating_sub(self.first_ms.unwrap_or(0))
            .max(1);
        range.span_ms().map_or(age, |span| span.min(age))
    }

    /// The highest value of each of `n` equal parts of a range, oldest first. A part without a value of its own has the
    /// last one before it; `None` where nothing is known.
    pub fn cells(&self, range: TimeRange, n: usize) -> Vec<Option<u64>> {
        let mut cells: Vec<Option<u64>> = vec![None; n];
        let mut last = None;
        let mut n_filled = 0;
        for (idx, column) in self.columns_by_cell(range, n) {
            let Some(idx) = idx else {
                last = Some(column.peak);
                continue;
            };
            if idx >= n_filled {
                let known = last.filter(|_| !column.follows_gap);
                cells[n_filled..idx].fill(known);
                n_filled = idx + 1;
            }
            cells[idx] = cells[idx].max(Some(column.peak));
            last = Some(column.peak);
        }
        cells[n_filled..].fill(last);
        cells
    }

    /// The trend of the peaks of a range, in units per second; `None` where there are too few to tell.
    pub(crate) fn trend(&self, range: TimeRange) -> Option<Trend> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut last_idx = None;
        for (idx, column) in self.columns_by_cell(range, N_POINTS) {
            if column.follows_gap {
                points.clear();
                last_idx = None;
            }
            let Some(idx) = idx else { continue };
            let seconds = idx as f64 * self.span_ms(range) as f64 / N_POINTS as f64 / 1e3;
            match points.last_mut() {
                Some(point) if last_idx == Some(idx) => point.1 = point.1.max(column.peak as f64),
                _ => points.push((seconds, column.peak as f64)),
            }
            last_idx = Some(idx);
        }
        Trend::of(&points)
    }

    /// The columns of a range, oldest first, each with the cell it belongs to; `None` for what was before the range.
    fn columns_by_cell(
        &self,
        range: TimeRange,
        n: usize,
    ) -> impl Iterator<Item = (Option<usize>, &Column)> {
        let span = self.span_ms(range);
        // The finest columns that reach back far enough.
        let covers = |range: &TimeRange| range.span_ms().is_none_or(|covered| span <= covered);
        let finest = TimeRange::ALL.into_iter().find(covers).unwrap_or_default();
        let ring = &self.rings[finest as usize];
        let from = self.now_ms.saturating_sub(span);
        ring.columns.iter().map(move |column| {
            let at = column.number.saturating_mul(ring.width_ms);
            let is_before = n == 0 || at.saturating_add(ring.width_ms) <= from;
            let share = at.saturating_sub(from) as f64 / span as f64;
            let idx = (!is_before).then(|| cell_of(share, n));
            (idx, column)
        })
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.rings.iter().map(|ring| ring.columns.len()).sum()
    }
}

impl Ring {
    fn push(&mut self, at_ms: u64, value: u64, follows_gap: bool) {
        let number = at_ms / self.width_ms;
        match self.columns.back_mut() {
            Some(last) if last.number == number => last.peak = last.peak.max(value),
            _ => self.columns.push_back(Column {
                number,
                peak: value,
                follows_gap,
            }),
        }
        if self.keeps_all {
            while self.columns.len() > N_COLUMNS {
                self.halve();
            }
        } else {
            let oldest = number.saturating_sub(N_COLUMNS as u64);
            while self
                .columns
                .front()
                .is_some_and(|column| column.number < oldest)
            {
                self.columns.pop_front();
            }
        }
    }

    /// Makes columns twice as wide.
    fn halve(&mut self) {
        self.width_ms = self.width_ms.saturating_mul(2);
        let mut wider: VecDeque<Column> = VecDeque::with_capacity(N_COLUMNS + 1);
        for column in self.columns.drain(..) {
            let number = column.number / 2;
            match wider.back_mut() {
                Some(last) if last.number == number => last.peak = last.peak.max(column.peak),
                _ => wider.push_back(Column { number, ..column }),
            }
        }
        self.columns = wider;
    }
}

/// The cell of `n` in which a share of the whole lies.
fn cell_of(share: f64, n: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` takes the nearest index for what is out of range, which is what is wanted"
    )]
    let idx = (share * n as f64) as usize;
    idx.min(n.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_takes_no_more_columns_than_ten_minutes_and_keeps_its_peak() {
        let mut columns = PeakColumns::default();
        for tick in 0..86_400 * 5_u64 {
            let value = if tick == 123_456 { 900 } else { 100 };
            columns.push(tick * 200, value);
        }
        assert!(
            columns.n_held() <= 4 * (N_COLUMNS + 1),
            "{}",
            columns.n_held()
        );
        let cells = columns.cells(TimeRange::All, 76);
        assert_eq!(cells.iter().flatten().max(), Some(&900));
        assert!(cells.iter().all(Option::is_some));
        assert_eq!(columns.span_ms(TimeRange::All), 86_399_800);
        assert_eq!(columns.cells(TimeRange::Hour, 10), [Some(100); 10]);
    }

    #[test]
    fn a_young_run_fills_the_whole_width() {
        let mut columns = PeakColumns::default();
        columns.push(5_000, 1);
        columns.push(9_000, 2);
        assert_eq!(
            columns.cells(TimeRange::TenMinutes, 4),
            [Some(1), Some(1), Some(1), Some(2)]
        );
        assert_eq!(columns.cells(TimeRange::TenMinutes, 0), []);
    }

    #[test]
    fn nothing_is_shown_between_two_attempts() {
        let mut columns = PeakColumns::default();
        columns.push(0, 7);
        columns.push(1_000, 7);
        columns.interrupt();
        columns.push(9_000, 3);
        columns.push(10_000, 4);
        let cells = columns.cells(TimeRange::All, 10);
        assert_eq!(cells[0], Some(7));
        assert_eq!(cells[5], None);
        assert_eq!(cells[9], Some(4));
    }

    #[test]
    fn a_clock_that_steps_back_stands_still_and_one_that_jumps_is_survived() {
        let mut columns = PeakColumns::default();
        for at_ms in [10_000, 2_000, u64::MAX, 0, u64::MAX - 5] {
            columns.push(at_ms, at_ms);
        }
        for range in TimeRange::ALL {
            assert_eq!(columns.cells(range, 3).last(), Some(&Some(u64::MAX)));
            let _ = columns.trend(range);
        }
    }

    #[test]
    fn an_even_rise_has_a_slope() {
        let mut columns = PeakColumns::default();
        for second in 0..1200 {
            columns.push(second * 1000, second * 50);
        }
        let trend = columns.trend(TimeRange::TenMinutes).unwrap();
        assert!((trend.slope - 50.0).abs() < 2.0, "{}", trend.slope);
        assert!(trend.is_rising());
    }
}
