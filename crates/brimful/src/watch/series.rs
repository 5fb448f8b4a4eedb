//! Host memory over time, in buckets, so that a day needs no more room than a minute.

use std::collections::VecDeque;

use crate::watch::trend::Trend;

/// One look at host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub at_ms: u64,
    pub used: u64,
    pub headroom: u64,
    /// Optimizer steps of the process that leads, where it is known.
    pub steps: Option<u64>,
}

/// Everything that was seen in a stretch of time. The brim is hit by peaks, so peaks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Of its last point.
    pub at_ms: u64,
    pub used_peak: u64,
    pub headroom_low: u64,
    /// The largest rise from one look to the next.
    pub jump: u64,
    pub steps: Option<u64>,
    number: u64,
}

/// The newest buckets of one width, and the trend through those that are complete.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    width_ms: u64,
    most: usize,
    complete: VecDeque<Bucket>,
    open: Option<Bucket>,
    /// Bytes per second by which headroom falls.
    pub fall: Option<Fall>,
}

/// Headroom that falls, and what the job has to do with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fall {
    /// Bytes per second.
    pub trend: Trend,
    /// Bytes per second by which the job's own use rises over the same time; negative where it falls.
    pub own: f64,
}

/// Of a fall that the job is told about, its own part.
const OWN_SHARE: f64 = 0.5;

impl Fall {
    /// Whether the job itself takes most of it, and not a neighbour.
    pub(crate) fn is_own(&self) -> bool {
        self.own >= OWN_SHARE * self.trend.slope
    }
}

impl Series {
    pub(crate) fn new(width_ms: u64, most: usize) -> Series {
        Series {
            width_ms,
            most,
            complete: VecDeque::new(),
            open: None,
            fall: None,
        }
    }

    /// Takes a point that is not older than the last one; `jump` is the rise since that one. Says whether a bucket was
    /// completed by it.
    pub(crate) fn push(&mut self, point: Point, jump: u64) -> bool {
        let number = point.at_ms / self.width_ms;
        match &mut self.open {
            Some(bucket) if bucket.number == number => {
                bucket.at_ms = point.at_ms;
                bucket.used_peak = bucket.used_peak.max(point.used);
                bucket.headroom_low = bucket.headroom_low.min(point.headroom);
                bucket.jump = bucket.jump.max(jump);
                bucket.steps = point.steps.or(bucket.steps);
                false
            }
            open => {
                let closed = open.replace(Bucket {
                    at_ms: point.at_ms,
                    used_peak: point.used,
                    headroom_low: point.headroom,
                    jump,
                    steps: point.steps,
                    number,
                });
                let is_complete = closed.is_some();
                if let Some(closed) = closed {
                    self.close(closed, number);
                }
                is_complete
            }
        }
    }

    fn close(&mut self, bucket: Bucket, now_number: u64) {
        self.complete.push_back(bucket);
        let most = self.most as u64;
        while self
            .complete
            .front()
            .is_some_and(|oldest| now_number - oldest.number > most)
        {
            self.complete.pop_front();
        }
        // Made anew when a bucket closes, not with every sample: near the brim there are 50 a second.
        let trend_of = |value: fn(&Bucket) -> f64| {
            let points: Vec<(f64, f64)> = self
                .complete
                .iter()
                .map(|bucket| (bucket.seconds(), value(bucket)))
                .collect();
            Trend::of(&points)
        };
        self.fall = trend_of(|bucket| -(bucket.headroom_low as f64)).map(|trend| Fall {
            trend,
            own: trend_of(|bucket| bucket.used_peak as f64).map_or(0.0, |own| own.slope),
        });
    }

    /// Bytes per second by which the job's own use rises, over so many buckets at least. What a training does before
    /// its first step is loading.
    pub(crate) fn growth(&self, least_buckets: usize) -> Option<Trend> {
        let points: Vec<(f64, f64)> = self
            .complete
            .iter()
            .filter(|bucket| bucket.steps != Some(0))
            .map(|bucket| (bucket.seconds(), bucket.used_peak as f64))
            .collect();
        (points.len() >= least_buckets).then(|| Trend::of(&points))?
    }

    /// Oldest first, the last one still open.
    pub(crate) fn buckets(&self) -> impl DoubleEndedIterator<Item = &Bucket> {
        self.complete.iter().chain(&self.open)
    }

    /// Steps per second over the complete buckets.
    pub(crate) fn step_rate(&self) -> Option<f64> {
        let mut known = self
            .complete
            .iter()
            .filter_map(|bucket| Some((bucket.at_ms, bucket.steps?)));
        let (from_ms, from) = known.next()?;
        let (to_ms, to) = known.next_back()?;
        let steps = to.checked_sub(from).filter(|steps| *steps > 0)?;
        Some(steps as f64 / ((to_ms - from_ms).max(1) as f64 / 1e3))
    }
}

impl Bucket {
    fn seconds(&self) -> f64 {
        self.at_ms as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_ms: u64, used: u64) -> Point {
        Point {
            at_ms,
            used,
            headroom: 10_000_u64.saturating_sub(used),
            steps: Some(at_ms / 100),
        }
    }

    #[test]
    fn a_bucket_keeps_the_peak() {
        let mut series = Series::new(1000, 4);
        for (at_ms, used) in [(0, 10), (400, 90), (900, 20), (1100, 30)] {
            series.push(point(at_ms, used), 0);
        }
        let peaks: Vec<u64> = series.buckets().map(|bucket| bucket.used_peak).collect();
        assert_eq!(peaks, [90, 30]);
    }

    #[test]
    fn old_buckets_go() {
        let mut series = Series::new(1000, 4);
        for second in 0..100 {
            series.push(point(second * 1000, second), 0);
        }
        assert_eq!(series.complete.len(), 4);
        // A pause of an hour leaves nothing of what was before.
        series.push(point(3_700_000, 0), 0);
        series.push(point(3_701_000, 0), 0);
        assert_eq!(series.complete.len(), 1);
    }

    #[test]
    fn steps_have_a_rate() {
        let mut series = Series::new(1000, 60);
        for second in 0..20 {
            series.push(point(second * 1000, second), 0);
        }
        assert!((series.step_rate().unwrap() - 10.0).abs() < 1e-9);
    }
}
