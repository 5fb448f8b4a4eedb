//! How often CUDA's allocator gave everything back and tried again, in the last minute.

use std::collections::{BTreeMap, VecDeque};

use crate::watch::sample::Sample;

const WINDOW_MS: u64 = 60_000;
const MAX_PROCESSES: usize = 64;
const MAX_RISES: usize = 32;

/// The counters of each process, and when they rose.
#[derive(Clone, Debug, Default)]
pub(crate) struct Retries {
    by_pid: BTreeMap<u32, Counter>,
}

#[derive(Clone, Debug)]
struct Counter {
    device: Option<u32>,
    last: u64,
    /// When, and by how much.
    rises: VecDeque<(u64, u64)>,
}

/// The process whose allocator retried most in the last minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thrash {
    pub pid: u32,
    pub device: Option<u32>,
    pub n_retries: u64,
    /// Samples in which they came: once may be a last batch of another shape.
    pub n_rises: usize,
}

impl Retries {
    pub(crate) fn take(&mut self, sample: &Sample, now_ms: u64) {
        if sample.gauges.is_empty() {
            return;
        }
        self.by_pid
            .retain(|pid, _| sample.gauges.iter().any(|gauge| gauge.pid == *pid));
        for gauge in &sample.gauges {
            if self.by_pid.len() >= MAX_PROCESSES && !self.by_pid.contains_key(&gauge.pid) {
                continue;
            }
            let counter = self.by_pid.entry(gauge.pid).or_insert(Counter {
                device: gauge.device,
                last: gauge.retries,
                rises: VecDeque::new(),
            });
            counter.device = gauge.device.or(counter.device);
            let by = gauge.retries.saturating_sub(counter.last);
            counter.last = gauge.retries;
            if by > 0 {
                counter.rises.push_back((now_ms, by));
            }
            while counter.rises.len() > MAX_RISES
                || counter
                    .rises
                    .front()
                    .is_some_and(|(at_ms, _)| now_ms.saturating_sub(*at_ms) > WINDOW_MS)
            {
                counter.rises.pop_front();
            }
        }
    }

    pub(crate) fn worst(&self) -> Option<Thrash> {
        self.by_pid
            .iter()
            .map(|(pid, counter)| Thrash {
                pid: *pid,
                device: counter.device,
                n_retries: counter
                    .rises
                    .iter()
                    .fold(0, |sum, (_, by)| sum.saturating_add(*by)),
                n_rises: counter.rises.len(),
            })
            .max_by_key(|thrash| (thrash.n_retries, std::cmp::Reverse(thrash.pid)))
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.by_pid
            .values()
            .map(|counter| 1 + counter.rises.len())
            .sum()
    }
}
