//! From what was rehearsed to what was not: straight lines over the micro-batch.
//!
//! These lines only choose what is rehearsed next, say how far off a refused setting is, and order the rungs: a plan
//! itself is always made of a rehearsal at its own micro-batch. Bytes are taken to grow with the micro-batch, and to be
//! no more with activation checkpointing than without.

/// Share of a card's bytes that does not depend on the micro-batch (weights, gradients, optimizer, context), where only
/// one micro-batch is known. A first guess, which the next rehearsal corrects.
const FIXED_SHARE: f64 = 0.35;
/// How much of the growth per sample is left with activation checkpointing, where it was not rehearsed. A first guess.
const KEPT_SHARE: f64 = 0.3;

/// Figures by micro-batch.
pub(crate) type Points = Vec<(u64, f64)>;

/// `y = base + slope * micro`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) base: f64,
    pub(crate) slope: f64,
}

impl Line {
    pub(crate) fn at(self, micro: u64) -> f64 {
        (self.base + self.slope * micro as f64).max(0.0)
    }

    /// Through one point, by the usual share; what does not grow is at most `max_base`.
    pub(crate) fn guess((micro, y): (u64, f64), max_base: f64) -> Line {
        let base = (y * FIXED_SHARE).min(max_base.max(0.0));
        Line {
            base,
            slope: (y - base) / micro.max(1) as f64,
        }
    }

    /// Through the two points that are nearest to `micro`; nothing for fewer than two. Never falls.
    pub(crate) fn through(points: &[(u64, f64)], micro: u64) -> Option<Line> {
        let mut sorted = points.to_vec();
        sorted.sort_by_key(|point| point.0);
        sorted.dedup_by_key(|point| point.0);
        if sorted.len() < 2 {
            return None;
        }
        let above = sorted.partition_point(|point| point.0 < micro);
        let right = above.clamp(1, sorted.len() - 1);
        let ((m0, y0), (m1, y1)) = (sorted[right - 1], sorted[right]);
        let slope = ((y1 - y0) / (m1 - m0) as f64).max(0.0);
        Some(Line {
            base: y0 - slope * m0 as f64,
            slope,
        })
    }
}

/// The line of one setting of activation checkpointing, helped by those of another where it has few points itself. What
/// does not grow is at most `max_base`: the least that was seen at all.
pub(crate) fn card_line(
    own: &[(u64, f64)],
    other: &[(u64, f64)],
    own_recomputes: bool,
    other_recomputes: bool,
    (micro, max_base): (u64, f64),
) -> Option<Line> {
    if let Some(line) = Line::through(own, micro) {
        return Some(line);
    }
    // Growth here for each byte of growth there.
    let ratio = match (own_recomputes, other_recomputes) {
        (true, false) => KEPT_SHARE,
        (false, true) => 1.0 / KEPT_SHARE,
        _ => 1.0,
    };
    let Some(&(m0, y0)) = own.first() else {
        let there = Line::through(other, micro)
            .or_else(|| other.first().map(|p| Line::guess(*p, max_base)))?;
        return Some(Line {
            slope: there.slope * ratio,
            ..there
        });
    };
    let through_own = |slope: f64| {
        let least = ((y0 - max_base) / m0.max(1) as f64).max(0.0);
        let slope = slope.clamp(least, (y0 / m0.max(1) as f64).max(least));
        Line {
            base: y0 - slope * m0 as f64,
            slope,
        }
    };
    if let Some(there) = Line::through(other, micro) {
        // Weights and the like are the same in both, which a point far out shows best.
        let far_out = other.iter().all(|point| m0 >= point.0);
        if far_out && y0 > there.base {
            return Some(through_own((y0 - there.base.max(0.0)) / m0.max(1) as f64));
        }
        return Some(through_own(there.slope * ratio));
    }
    if let Some(&(m1, y1)) = other.first() {
        // The same base, growth in that ratio: two points decide.
        let slope = (y0 - y1) / (ratio * m0 as f64 - m1 as f64);
        if slope.is_finite() && slope > 0.0 && y1 - slope * m1 as f64 > 0.0 {
            return Some(through_own(slope * ratio));
        }
    }
    if micro > m0 {
        // Nothing says yet how fast it grows: a rehearsal of the larger one shall tell.
        return Some(through_own(0.0));
    }
    Some(Line::guess((m0, y0), max_base))
}

/// The middle of what is above zero, or zero.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut known: Vec<f64> = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .collect();
    known.sort_by(f64::total_cmp);
    known.get(known.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_points_decide() {
        let points = [(8, 18.0), (2, 6.0)];
        let line = Line::through(&points, 4).expect("two points");
        assert!((line.at(4) - 10.0).abs() < 1e-9);
        assert!((line.at(16) - 34.0).abs() < 1e-9);
    }

    #[test]
    fn lines_never_fall() {
        let line = Line::through(&[(1, 9.0), (2, 3.0)], 1).expect("two points");
        assert!(line.at(4) >= line.at(1));
    }

    #[test]
    fn one_point_with_and_one_without_checkpointing_decide() {
        // Base 10, growth 1 per sample without, 0.3 with.
        let line =
            card_line(&[(100, 40.0)], &[(10, 20.0)], true, false, (50, 20.0)).expect("points");
        assert!((line.at(50) - 25.0).abs() < 1e-6, "{line:?}");
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(card_line(&[], &[], true, false, (1, 0.0)), None);
        assert!(median(std::iter::empty()).abs() < 1e-9);
    }
}
