//! What is remembered of host memory, and the two ways to look at it: a trend over a minute and more, and the last
//! moments for a burst.

use std::collections::VecDeque;

use crate::watch::series::{Bucket, Fall, Point, Series};
use crate::watch::trend::Trend;

/// Looks kept one by one: more than a second at the fastest interval.
const N_POINTS: usize = 64;
/// Shorter spans make a single chunk of 40 MB look like a burst of gigabytes per second.
const FAST_SPAN_MS: u64 = 100;
const SHORT_SPAN_MS: u64 = 500;
/// A rise may not count its own beginning as ground it has known before.
const RISE_MS: u64 = 2_000;
/// How far back a rise may have begun.
const TROUGH_MS: u64 = 10_000;

/// Host memory so far.
#[derive(Clone, Debug)]
pub(crate) struct HostHistory {
    points: VecDeque<Point>,
    /// Set with every point.
    limit: u64,
    /// A minute, by the second.
    pub fine: Series,
    /// Half an hour, by the half minute.
    pub middle: Series,
    /// A day, by ten minutes.
    pub coarse: Series,
    /// Even growth of the job's own use.
    leak: Option<TimeLeak>,
}

/// Growth over time that does not stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TimeLeak {
    pub trend: Trend,
    pub steps_per_second: Option<f64>,
}

/// Growth is looked at for ten minutes, or two hours, before it is called even.
const LEAK_MIDDLE_BUCKETS: usize = 20;
const LEAK_COARSE_BUCKETS: usize = 12;

/// How headroom falls in the last moments, in bytes per second; negative where it rises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Burst {
    /// Over the shortest span that says anything.
    pub fast: f64,
    pub short: f64,
    /// From the last look but one to the last.
    pub last_gap: f64,
    /// The job's own use over the short span.
    pub growth: f64,
    /// Fall of headroom from its best in the last ten seconds.
    pub depth: u64,
}

impl Default for HostHistory {
    fn default() -> HostHistory {
        HostHistory {
            points: VecDeque::new(),
            limit: 0,
            fine: Series::new(1_000, 60),
            middle: Series::new(30_000, 64),
            coarse: Series::new(600_000, 144),
            leak: None,
        }
    }
}

impl HostHistory {
    /// Takes a look that is not older than the last one.
    pub(crate) fn push(&mut self, point: Point, limit: u64) {
        self.limit = limit;
        let jump = self
            .points
            .back()
            .map_or(0, |last| last.headroom.saturating_sub(point.headroom));
        self.fine.push(point, jump);
        let closed_middle = self.middle.push(point, jump);
        let closed_coarse = self.coarse.push(point, jump);
        if closed_middle || closed_coarse {
            self.leak = time_leak(&self.middle, LEAK_MIDDLE_BUCKETS)
                .or_else(|| time_leak(&self.coarse, LEAK_COARSE_BUCKETS));
        }
        // Two looks at the same moment have no slope; the later one stands.
        if self
            .points
            .back()
            .is_some_and(|last| last.at_ms == point.at_ms)
        {
            self.points.pop_back();
        }
        self.points.push_back(point);
        if self.points.len() > N_POINTS {
            self.points.pop_front();
        }
    }

    pub(crate) fn last(&self) -> Option<&Point> {
        self.points.back()
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn leak(&self) -> Option<TimeLeak> {
        self.leak
    }

    /// The last moments, once there are two looks.
    pub(crate) fn burst(&self) -> Option<Burst> {
        let last = self.points.back()?;
        let before = self.points.iter().rev().nth(1)?;
        let fast = self.since(FAST_SPAN_MS)?;
        let short = self.since(SHORT_SPAN_MS)?;
        let best = self
            .points
            .iter()
            .filter(|point| last.at_ms - point.at_ms <= TROUGH_MS)
            .map(|point| point.headroom)
            .max()?;
        // At the fastest intervals the single looks reach back little more than a second; the buckets know the rest.
        let best = self
            .fine
            .buckets()
            .filter(|bucket| last.at_ms - bucket.at_ms <= TROUGH_MS)
            .map(|bucket| bucket.headroom_low)
            .max()
            .map_or(best, |low| low.max(best));
        Some(Burst {
            fast: fall_rate(fast, last),
            short: fall_rate(short, last),
            last_gap: fall_rate(before, last),
            growth: rate(short.used, last.used, short.at_ms, last.at_ms),
            depth: best.saturating_sub(last.headroom),
        })
    }

    /// The newest look that is at least so old, or the oldest one there is.
    fn since(&self, span_ms: u64) -> Option<&Point> {
        let last = self.points.back()?;
        self.points
            .iter()
            .rev()
            .skip(1)
            .find(|point| last.at_ms - point.at_ms >= span_ms)
            .or_else(|| self.points.front().filter(|point| point.at_ms < last.at_ms))
    }

    /// The least headroom of all the time before the last `span_ms`, as far as it is remembered.
    ///
    /// A job that has been there and came back may go there again: below this a rise is news.
    pub(crate) fn known_low(&self, span_ms: u64) -> Option<u64> {
        let until = self.last()?.at_ms.checked_sub(span_ms.max(RISE_MS))?;
        self.fine
            .buckets()
            .chain(self.middle.buckets())
            .filter(|bucket| bucket.at_ms <= until)
            .map(|bucket| bucket.headroom_low)
            .min()
    }

    /// Whether headroom is clearly below everything known before the last `span_ms`. `None` where nothing is known.
    pub(crate) fn is_new_ground(&self, span_ms: u64) -> Option<bool> {
        let low = self.known_low(span_ms)?;
        let headroom = self.last()?.headroom;
        // The records of mere noise lie close together.
        let tolerance = (self.limit / 100).min(headroom / 8);
        Some(headroom.saturating_add(tolerance) < low)
    }

    /// Fall of headroom over about the last `span_ms`, from the buckets of a second.
    pub(crate) fn fall_since(&self, span_ms: u64) -> Option<f64> {
        let last = self.last()?;
        let then = self
            .fine
            .buckets()
            .rev()
            .find(|bucket| last.at_ms - bucket.at_ms >= span_ms)?;
        Some(then.headroom_low as f64 - last.headroom as f64)
    }

    /// The largest fall of headroom from one look to the next in the last minute.
    pub(crate) fn largest_jump(&self) -> u64 {
        let jump = |bucket: &Bucket| bucket.jump;
        self.fine.buckets().map(jump).max().unwrap_or(0)
    }

    /// The trends by which headroom falls, shortest first, where it does.
    pub(crate) fn falls(&self) -> impl Iterator<Item = Fall> {
        [self.fine.fall, self.middle.fall, self.coarse.fall]
            .into_iter()
            .flatten()
            .filter(|fall| fall.trend.is_rising())
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.points.len()
            + self.fine.buckets().count()
            + self.middle.buckets().count()
            + self.coarse.buckets().count()
    }
}

fn time_leak(series: &Series, least_buckets: usize) -> Option<TimeLeak> {
    let trend = series.growth(least_buckets).filter(Trend::is_steady)?;
    Some(TimeLeak {
        trend,
        steps_per_second: series.step_rate(),
    })
}

fn fall_rate(from: &Point, to: &Point) -> f64 {
    -rate(from.headroom, to.headroom, from.at_ms, to.at_ms)
}

/// Rise in units per second.
fn rate(from: u64, to: u64, from_ms: u64, to_ms: u64) -> f64 {
    (to as f64 - from as f64) / (to_ms.saturating_sub(from_ms).max(1) as f64 / 1e3)
}
