//! What the samples say: how near the brim it was, how it came there, and what each worker cost.

use crate::explain::Evidence;
use crate::units::Bytes;
use crate::watch::{HostSample, ProcessSample, Role, Sample, SharedMemorySample};

/// Headroom below this share of the limit is next to nothing: a training step moves more.
const NEARLY_FULL: f64 = 0.05;
/// And above this share the brim was far away.
const FAR_FROM_FULL: f64 = 0.2;

/// A rise is called steady once it has been seen for so long.
const LEAK_MS: u64 = 20_000;
/// What comes within so little is sudden.
const BURST_MS: u64 = 2_000;

/// The samples of an attempt, as far as a verdict needs them.
#[derive(Clone, Debug, Default)]
pub(in crate::explain) struct Series {
    /// The last one with host memory in it.
    pub(in crate::explain) last_host: Option<HostSample>,
    pub(in crate::explain) least_headroom: Option<Bytes>,
    pub(in crate::explain) peak_used: Option<Bytes>,
    /// At its fullest.
    pub(in crate::explain) shm: Option<SharedMemorySample>,
    pub(in crate::explain) shape: Option<Shape>,
    pub(in crate::explain) workers: Option<Workers>,
}

/// How host memory came to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::explain) enum Shape {
    /// A steady rise by `rise` bytes in `over_ms` milliseconds.
    Leak { rise: Bytes, over_ms: u64 },
    /// Stable, then a rise by `rise` bytes in the last `over_ms` milliseconds.
    Burst { rise: Bytes, over_ms: u64 },
}

/// DataLoader workers, as they were last measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::explain) struct Workers {
    pub(in crate::explain) n: u64,
    /// The largest: workers do the same work, and the last to be measured is the fullest.
    pub(in crate::explain) private_each: Bytes,
    /// Since they were first measured, all together.
    pub(in crate::explain) grown_by: Bytes,
}

impl Series {
    pub(in crate::explain) fn of(evidence: &Evidence) -> Series {
        let last = evidence.end.as_ref().and_then(|end| end.last.as_ref());
        let samples: Vec<&Sample> = evidence.samples.iter().chain(last).collect();
        let hosts: Vec<(u64, HostSample)> = samples
            .iter()
            .filter_map(|sample| Some((sample.at_ms, sample.host?)))
            .collect();
        let peaks = evidence.end.as_ref().map(|end| &end.peaks);
        Series {
            last_host: hosts.last().map(|(_, host)| *host),
            least_headroom: hosts
                .iter()
                .map(|(_, host)| host.headroom)
                .chain(peaks.and_then(|peaks| peaks.least_headroom))
                .min(),
            peak_used: hosts
                .iter()
                .map(|(_, host)| host.used)
                .chain(peaks.and_then(|peaks| peaks.host_used))
                .max(),
            shm: fullest_shm(&samples, peaks.and_then(|peaks| peaks.shm_used)),
            shape: shape(&hosts),
            workers: workers(&samples),
        }
    }

    /// The brim, as the last sample knew it.
    pub(in crate::explain) fn limit(&self) -> Option<Bytes> {
        self.last_host.map(|host| host.limit)
    }

    /// Whether host memory was next to full at the end; `None` without samples.
    pub(in crate::explain) fn was_nearly_full(&self) -> Option<bool> {
        let host = self.last_host?;
        let headroom = self.least_headroom.unwrap_or(host.headroom);
        Some(headroom.min(host.headroom).share_of(host.limit) <= NEARLY_FULL)
    }

    /// Whether there was plenty of room at all times.
    pub(in crate::explain) fn was_far_from_full(&self) -> bool {
        self.last_host.is_some_and(|host| {
            let headroom = self.least_headroom.unwrap_or(host.headroom);
            headroom.share_of(host.limit) > FAR_FROM_FULL
        })
    }

    /// "peak 7.8 GiB of 8 GiB, lowest headroom 200 MiB".
    pub(in crate::explain) fn host_in_words(&self) -> Option<String> {
        let host = self.last_host?;
        // A sample that was taken while processes were ending already says little of what ended them.
        let peak = self.peak_used.unwrap_or(host.used).max(host.used);
        let left = self
            .least_headroom
            .unwrap_or(host.headroom)
            .min(host.headroom);
        Some(format!(
            "peak {peak} of {}, lowest headroom {left}",
            host.limit
        ))
    }
}

impl Workers {
    /// The most workers below the present count that fit with a tenth to spare, and what would be used then.
    pub(in crate::explain) fn fewer(&self, peak: Bytes, limit: Bytes) -> Option<(u64, Bytes)> {
        (0..self.n).rev().find_map(|n| {
            let saved = self.private_each.get().checked_mul(self.n - n)?;
            let used = peak.saturating_sub(Bytes(saved));
            (used.share_of(limit) <= 0.9).then_some((n, used))
        })
    }
}

fn fullest_shm(samples: &[&Sample], peak: Option<Bytes>) -> Option<SharedMemorySample> {
    let mut fullest = samples
        .iter()
        .filter_map(|sample| sample.shm)
        .max_by_key(|shm| shm.used)?;
    fullest.used = peak.map_or(fullest.used, |peak| peak.max(fullest.used));
    Some(fullest)
}

/// A leak rises in every quarter of the time after the start; a burst comes at the end, out of calm. What comes after
/// the highest sample is no part of it: somebody has ended by then.
fn shape(hosts: &[(u64, HostSample)]) -> Option<Shape> {
    let highest = hosts
        .iter()
        .enumerate()
        .max_by_key(|(idx, (_, host))| (host.used, *idx))
        .map(|(idx, _)| idx)?;
    let hosts = &hosts[..=highest];
    if hosts.len() < 4 {
        return None;
    }
    let (begin_ms, _) = *hosts.first()?;
    let (end_ms, last) = *hosts.last()?;
    let span = end_ms.saturating_sub(begin_ms);
    // The first quarter is the making of the model and the first epoch's caches.
    let warm: Vec<&(u64, HostSample)> = hosts
        .iter()
        .filter(|(at_ms, _)| at_ms.saturating_sub(begin_ms).saturating_mul(4) >= span)
        .collect();
    let first = warm.first()?;
    let rise = last.used.saturating_sub(first.1.used);
    burst(&warm).or_else(|| {
        let over_ms = end_ms.saturating_sub(first.0);
        let quarter = warm.len() / 4;
        if quarter == 0 || over_ms < LEAK_MS || rise.share_of(last.limit) < 0.1 {
            return None;
        }
        let means: Vec<u64> = warm
            .chunks(quarter)
            .take(4)
            .map(|part| {
                part.iter()
                    .map(|(_, host)| host.used.get() / part.len() as u64)
                    .sum()
            })
            .collect();
        means
            .windows(2)
            .all(|pair| pair[1] > pair[0])
            .then_some(Shape::Leak { rise, over_ms })
    })
}

/// Up by a good part of the limit in the last tenth of the time, at least three times as fast as before.
fn burst(warm: &[&(u64, HostSample)]) -> Option<Shape> {
    let (first_ms, first) = **warm.first()?;
    let (end_ms, last) = **warm.last()?;
    let window = (end_ms.saturating_sub(first_ms) / 10).max(BURST_MS);
    let (calm_ms, calm) = **warm
        .iter()
        .rfind(|(at_ms, _)| at_ms.saturating_add(window) <= end_ms)?;
    // Too little was seen before to call it calm.
    if calm_ms.saturating_sub(first_ms) < window / 2 {
        return None;
    }
    let rise = last.used.saturating_sub(calm.used);
    let over_ms = end_ms.saturating_sub(calm_ms);
    let rate = |rise: Bytes, over_ms: u64| rise.get() as f64 / over_ms.max(1) as f64;
    let before = calm.used.saturating_sub(first.used);
    let was_calm = rate(before, calm_ms.saturating_sub(first_ms)) * 3.0 <= rate(rise, over_ms);
    (was_calm && rise.share_of(last.limit) >= 0.15).then_some(Shape::Burst { rise, over_ms })
}

fn workers(samples: &[&Sample]) -> Option<Workers> {
    let is_worker = |process: &&ProcessSample| matches!(process.role, Role::Worker { .. });
    let sum = |sample: &Sample| -> u64 {
        sample
            .processes
            .iter()
            .filter(is_worker)
            .map(|process| process.private.get())
            .sum()
    };
    let with_workers = || {
        samples
            .iter()
            .filter(|sample| sample.processes.iter().any(|process| is_worker(&process)))
    };
    let first = with_workers().next()?;
    let last = with_workers().next_back()?;
    let n = last.processes.iter().filter(is_worker).count();
    Some(Workers {
        n: n as u64,
        private_each: last
            .processes
            .iter()
            .filter(is_worker)
            .map(|process| process.private)
            .max()?,
        grown_by: Bytes(sum(last).saturating_sub(sum(first))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(used_gib: &[u64]) -> Series {
        Series::of(&Evidence {
            samples: used_gib
                .iter()
                .zip(0_u64..)
                .map(|(used, idx)| Sample {
                    at_ms: idx * 10_000,
                    host: Some(HostSample {
                        used: Bytes::from_gib(*used),
                        limit: Bytes::from_gib(32),
                        headroom: Bytes::from_gib(32 - used),
                        swapped: None,
                    }),
                    ..Sample::default()
                })
                .collect(),
            ..Evidence::default()
        })
    }

    #[test]
    fn a_steady_rise_is_a_leak() {
        let found = series(&[2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32]);
        assert!(matches!(found.shape, Some(Shape::Leak { .. })), "{found:?}");
        assert_eq!(found.was_nearly_full(), Some(true));
    }

    #[test]
    fn calm_and_then_a_jump_is_a_burst() {
        let found = series(&[8, 9, 8, 9, 8, 9, 8, 9, 8, 31]);
        assert!(
            matches!(found.shape, Some(Shape::Burst { .. })),
            "{found:?}"
        );
    }

    #[test]
    fn calm_to_the_end_has_no_shape() {
        let found = series(&[8, 9, 8, 9, 8, 9, 8, 9, 8, 9]);
        assert_eq!(found.shape, None);
        assert!(found.was_far_from_full());
    }

    #[test]
    fn fewer_workers_are_computed_from_what_each_holds() {
        let workers = Workers {
            n: 4,
            private_each: Bytes::from_gib(3),
            grown_by: Bytes::ZERO,
        };
        assert_eq!(
            workers.fewer(Bytes::from_gib(16), Bytes::from_gib(12)),
            Some((2, Bytes::from_gib(10)))
        );
        assert_eq!(
            workers.fewer(Bytes::from_gib(40), Bytes::from_gib(12)),
            None
        );
    }
}
