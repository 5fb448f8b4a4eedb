//! The processes of a job, and how much of the rise of memory is theirs.

use std::collections::BTreeMap;

use crate::live::columns::TimeRange;
use crate::live::events::plain_text;
use crate::units::Bytes;
use crate::watch::{ProcessSample, Role};

/// Processes that are followed, by size.
const MAX_PROCESSES: usize = 64;
/// Earlier sizes of one process; beyond that every second one is dropped.
const MAX_POINTS: usize = 64;
/// A rise of less is noise, and has no shares.
const LEAST_RISE: u64 = 16 << 20;

/// One process of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveProcess {
    pub pid: u32,
    pub role: Role,
    pub name: String,
    pub private: Bytes,
    pub shared: Bytes,
    pub swapped: Bytes,
    /// Its share of what private memory of all processes has risen by, from 0 to 1; `None` where that is nothing.
    pub share_of_rise: Option<f64>,
}

/// The processes of the latest sample that measured them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcessHistory {
    latest: Vec<ProcessSample>,
    n_left_out: usize,
    points: BTreeMap<u32, Vec<Point>>,
    now_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    at_ms: u64,
    private: u64,
}

impl ProcessHistory {
    pub(crate) fn take(&mut self, processes: &[ProcessSample], at_ms: u64) {
        if processes.is_empty() {
            return;
        }
        self.now_ms = at_ms;
        let mut by_size: Vec<&ProcessSample> = processes.iter().collect();
        by_size.sort_by_key(|process| {
            std::cmp::Reverse(process.private.saturating_add(process.swapped))
        });
        self.n_left_out = by_size.len().saturating_sub(MAX_PROCESSES);
        by_size.truncate(MAX_PROCESSES);
        by_size.sort_by_key(|process| (process.role, process.pid));
        self.latest = by_size
            .into_iter()
            .map(|process| ProcessSample {
                name: plain_text(&process.name),
                ..process.clone()
            })
            .collect();
        self.points
            .retain(|pid, _| self.latest.iter().any(|process| process.pid == *pid));
        for process in &self.latest {
            let points = self.points.entry(process.pid).or_default();
            if points.len() >= MAX_POINTS {
                let mut idx = 0;
                points.retain(|_| {
                    idx += 1;
                    idx % 2 == 1
                });
            }
            points.push(Point {
                at_ms,
                private: process.private.get(),
            });
        }
    }

    /// Processes beyond those that are followed.
    pub(crate) fn n_left_out(&self) -> usize {
        self.n_left_out
    }

    /// By role. The rise is that of a time range, or since a process was first seen if that is later.
    pub(crate) fn processes(&self, range: TimeRange) -> Vec<LiveProcess> {
        let from = range
            .span_ms()
            .map_or(0, |span| self.now_ms.saturating_sub(span));
        let rise_of = |process: &ProcessSample| {
            let points = self.points.get(&process.pid)?;
            let first = points.iter().find(|point| point.at_ms >= from)?;
            Some(process.private.get().saturating_sub(first.private))
        };
        let rises: Vec<u64> = self
            .latest
            .iter()
            .map(|process| rise_of(process).unwrap_or(0))
            .collect();
        let total = rises
            .iter()
            .fold(0_u64, |sum, rise| sum.saturating_add(*rise));
        self.latest
            .iter()
            .zip(rises)
            .map(|(process, rise)| LiveProcess {
                pid: process.pid,
                role: process.role,
                name: process.name.clone(),
                private: process.private,
                shared: process.shared,
                swapped: process.swapped,
                share_of_rise: (total >= LEAST_RISE).then(|| rise as f64 / total as f64),
            })
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn n_held(&self) -> usize {
        self.latest.len() + self.points.values().map(Vec::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, role: Role, private_mib: u64) -> ProcessSample {
        ProcessSample {
            pid,
            role,
            name: "python\u{1b}[2J".into(),
            private: Bytes::from_mib(private_mib),
            shared: Bytes::ZERO,
            swapped: Bytes::ZERO,
        }
    }

    fn worker(number: u32) -> Role {
        Role::Worker {
            loader: 0,
            worker: number,
        }
    }

    #[test]
    fn the_rise_is_shared_by_those_that_rose() {
        let mut history = ProcessHistory::default();
        for minute in 0..100 {
            history.take(
                &[
                    process(12, worker(1), 100 + 3 * minute),
                    process(10, Role::Main, 500),
                    process(11, worker(0), 100 + minute),
                ],
                minute * 60_000,
            );
        }
        let shown = history.processes(TimeRange::All);
        let shares: Vec<(u32, f64)> = shown
            .iter()
            .map(|process| (process.pid, process.share_of_rise.unwrap()))
            .collect();
        assert_eq!(shares, [(10, 0.0), (11, 0.25), (12, 0.75)]);
        assert_eq!(shown[0].name, "python[2J");
        // 4 MiB in a minute are noise.
        assert!(
            history.processes(TimeRange::Minute)[0]
                .share_of_rise
                .is_none()
        );
        assert!(history.n_held() <= 3 + 3 * MAX_POINTS);
    }

    #[test]
    fn thousands_of_processes_are_not_all_followed() {
        let mut history = ProcessHistory::default();
        let many: Vec<ProcessSample> = (0..4000)
            .map(|pid| process(pid, Role::Other, u64::from(pid)))
            .collect();
        history.take(&many, 0);
        assert_eq!(history.n_left_out(), 4000 - MAX_PROCESSES);
        assert_eq!(history.processes(TimeRange::All)[0].pid, 4000 - 64);
    }
}
