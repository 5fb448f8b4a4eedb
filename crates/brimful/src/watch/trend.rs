//! Whether a series rises, how fast, and how steadily.
//!
//! The slope is Theil and Sen's: the median of the slopes between all pairs of points. Up to 29 % of the points may be
//! anything at all without moving it much, so single batches, garbage collections and a step of a one-off load do not
//! make a trend. Whether the slope means anything is Mann and Kendall's question: how many more pairs rise than fall.
//!
//! The price is time: six points have to be seen before anything is said. What cannot wait for them is a burst, and
//! has its own short look in [`crate::watch::host`], where false alarms are cheap and a miss is not.

/// More points say nothing new, and the pairs grow with the square.
const MAX_POINTS: usize = 24;
/// With fewer points even a perfect rise may be chance.
const LEAST_POINTS: usize = 6;

/// A line through a series, and how well it fits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trend {
    /// Rise of the value per unit of the axis.
    pub slope: f64,
    /// From the first point to the last, on the axis.
    pub span: f64,
    /// Pairs that rise less pairs that fall, as a share of all pairs: 1 for an even rise, about 0 for noise.
    pub agreement: f64,
    /// The slope of the last third alone.
    latest: f64,
    n_points: usize,
    /// Medians of the four quarters of the series, in order.
    quarters: [f64; 4],
}

impl Trend {
    /// The trend of points in the order of their axis; `None` where there are too few to tell.
    pub(crate) fn of(points: &[(f64, f64)]) -> Option<Trend> {
        let points = thinned(points);
        let n_points = points.len();
        let span = points.last()?.0 - points.first()?.0;
        if n_points < LEAST_POINTS || span <= 0.0 {
            return None;
        }
        let mut balance = 0_i32;
        for (idx, &(_, earlier)) in points.iter().enumerate() {
            for &(_, later) in &points[idx + 1..] {
                balance += i32::from(later > earlier) - i32::from(later < earlier);
            }
        }
        let n_pairs = n_points * (n_points - 1) / 2;
        let quarter = |k: usize| {
            let part = &points[k * n_points / 4..(k + 1) * n_points / 4];
            median(&mut part.iter().map(|point| point.1).collect::<Vec<_>>())
        };
        Some(Trend {
            slope: median_slope(&points),
            latest: median_slope(&points[n_points - n_points.div_ceil(3).max(3)..]),
            span,
            agreement: f64::from(balance) / n_pairs as f64,
            n_points,
            quarters: [quarter(0), quarter(1), quarter(2), quarter(3)],
        })
    }

    /// The values rise, by more than chance, and have not stopped to: the last third rises half as fast at least.
    ///
    /// Noise without a trend has an agreement of 0 with a known spread; 3.5 times that spread is wrong once in
    /// 4000 looks. A single step reaches 0.5 at most, hence 0.55 at least.
    pub(crate) fn is_rising(&self) -> bool {
        let n = self.n_points as f64;
        let spread = (2.0 * (2.0 * n + 5.0) / (9.0 * n * (n - 1.0))).sqrt();
        self.slope > 0.0
            && self.agreement >= (3.5 * spread).clamp(0.55, 0.9)
            && self.latest >= 0.5 * self.slope
    }

    /// The rise is spread over the whole series: no quarter has most of it, none is flat. A load, a warm-up and a cache
    /// that fills up fail here.
    pub(crate) fn is_steady(&self) -> bool {
        let total = self.quarters[3] - self.quarters[0];
        self.is_rising()
            && self.quarters.windows(2).all(|pair| {
                let part = pair[1] - pair[0];
                part >= 0.05 * total && part <= 0.6 * total
            })
    }

    /// What the line rises by over the series.
    pub(crate) fn rise(&self) -> f64 {
        self.slope * self.span
    }
}

/// At most [`MAX_POINTS`] of the points, evenly, the last always among them.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stride = points.len().div_ceil(MAX_POINTS).max(1);
    let skip = points.len().saturating_sub(1) % stride;
    points.iter().skip(skip).step_by(stride).copied().collect()
}

fn median_slope(points: &[(f64, f64)]) -> f64 {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (idx, &(x0, y0)) in points.iter().enumerate() {
        for &(x1, y1) in &points[idx + 1..] {
            if x1 > x0 {
                slopes.push((y1 - y0) / (x1 - x0));
            }
        }
    }
    median(&mut slopes)
}

/// The middle value; 0 for none.
fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::testing::Noise;

    struct Shape {
        rises: bool,
        steady: bool,
    }

    fn check(value: impl Fn(f64) -> f64, expected: &Shape) -> Trend {
        let points: Vec<(f64, f64)> = (0..60)
            .map(|x| (f64::from(x), value(f64::from(x))))
            .collect();
        let trend = Trend::of(&points).unwrap();
        assert_eq!(trend.is_rising(), expected.rises, "{trend:?}");
        assert_eq!(trend.is_steady(), expected.steady, "{trend:?}");
        trend
    }

    const LEAK: Shape = Shape {
        rises: true,
        steady: true,
    };
    const NOTHING: Shape = Shape {
        rises: false,
        steady: false,
    };

    #[test]
    fn an_even_rise_has_its_slope() {
        let trend = check(|x| 100.0 + 3.0 * x, &LEAK);
        assert!((trend.slope - 3.0).abs() < 1e-9);
        assert!((trend.agreement - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_rise_is_seen_through_noise_as_large_as_half_of_it() {
        let noise = Noise::new(7);
        let trend = check(|x| 2.0 * x + 60.0 * noise.next(), &LEAK);
        assert!((1.4..2.6).contains(&trend.slope), "{trend:?}");
    }

    #[test]
    fn a_sawtooth_a_step_and_noise_are_no_rise() {
        check(|x| x % 10.0, &NOTHING);
        for at in [10.0, 20.0, 30.0, 40.0, 50.0] {
            check(|x| if x < at { 0.0 } else { 100.0 }, &NOTHING);
        }
        for seed in 0..50 {
            let noise = Noise::new(seed);
            check(|_| noise.next(), &NOTHING);
        }
    }

    #[test]
    fn what_fills_up_rises_until_it_is_full_and_is_never_steady() {
        check(|x| 1.0 - (-x / 12.0).exp(), &NOTHING);
        check(|x| x.min(40.0), &NOTHING);
    }

    #[test]
    fn a_leak_below_a_sawtooth_is_steady() {
        check(|x| 2.0 * x + 3.0 * (x % 5.0), &LEAK);
    }

    #[test]
    fn too_few_points_say_nothing() {
        assert_eq!(Trend::of(&[]), None);
        let few: Vec<(f64, f64)> = (0..5).map(|x| (f64::from(x), f64::from(x))).collect();
        assert_eq!(Trend::of(&few), None);
        assert_eq!(Trend::of(&[(1.0, 5.0); 20]), None);
    }
}
