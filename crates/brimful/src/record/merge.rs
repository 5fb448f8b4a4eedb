//! Fewer samples for a long run: old ones are merged, and no peak is lost.

use crate::record::line::Line;
use crate::units::Bytes;
use crate::watch::{Lowest, Sample};

/// Two neighbouring samples as one: the highest values of both, at the time of the higher use of host memory, and the
/// lowest beside them.
pub fn merged(a: &Sample, b: &Sample) -> Sample {
    let use_of = |sample: &Sample| sample.host.map(|host| host.used);
    let (higher, lower) = if use_of(b) >= use_of(a) {
        (b, a)
    } else {
        (a, b)
    };
    let mut sample = higher.clone();
    if let (Some(shm), Some(other)) = (&mut sample.shm, &lower.shm) {
        shm.used = shm.used.max(other.used);
    }
    sample.shm = sample.shm.or(lower.shm);
    if let (Some(stall), Some(other)) = (&mut sample.stall, &lower.stall) {
        stall.some_percent = stall.some_percent.max(other.some_percent);
        stall.full_percent = stall.full_percent.max(other.full_percent);
    }
    sample.stall = sample.stall.or(lower.stall);
    for gpu in &lower.gpus {
        match sample
            .gpus
            .iter_mut()
            .find(|found| found.index == gpu.index)
        {
            Some(found) if found.used >= gpu.used => {}
            Some(found) => *found = gpu.clone(),
            None => sample.gpus.push(gpu.clone()),
        }
    }
    for gauge in &lower.gauges {
        match sample
            .gauges
            .iter_mut()
            .find(|found| found.pid == gauge.pid)
        {
            Some(found) => {
                found.allocated = found.allocated.max(gauge.allocated);
                found.reserved = found.reserved.max(gauge.reserved);
                found.peak_allocated = found.peak_allocated.max(gauge.peak_allocated);
                found.peak_reserved = found.peak_reserved.max(gauge.peak_reserved);
                found.retries = found.retries.max(gauge.retries);
                found.ooms = found.ooms.max(gauge.ooms);
            }
            None => sample.gauges.push(gauge.clone()),
        }
    }
    if sample.processes.is_empty() {
        sample.processes.clone_from(&lower.processes);
    }
    sample.lowest = lowest(a, b);
    sample
}

/// The lowest values of both; `None` where neither has any.
fn lowest(a: &Sample, b: &Sample) -> Option<Lowest> {
    let of = |value: fn(&Sample) -> Option<Bytes>| [value(a), value(b)].into_iter().flatten().min();
    let mut indexes: Vec<u32> = [a, b]
        .iter()
        .flat_map(|sample| {
            let merged = sample.lowest.iter().flat_map(|lowest| &lowest.gpu_used);
            let current = sample.gpus.iter().map(|gpu| gpu.index);
            current.chain(merged.map(|(index, _)| *index))
        })
        .collect();
    indexes.sort_unstable();
    indexes.dedup();
    let of_gpu = |index: u32| {
        let both = [a.lowest_gpu_used(index), b.lowest_gpu_used(index)];
        Some((index, both.into_iter().flatten().min()?))
    };
    let found = Lowest {
        host_used: of(Sample::lowest_host_used),
        shm_used: of(Sample::lowest_shm_used),
        gpu_used: indexes.into_iter().filter_map(of_gpu).collect(),
    };
    (found != Lowest::default()).then_some(found)
}

/// Halves the old samples of a record that passes by line by line; everything else stays as it is, in order.
///
/// It holds one sample at a time, so that a supervisor of a few megabytes can shorten a record that is larger.
#[derive(Clone, Debug)]
pub struct Merger {
    /// Samples before this moment are old, and all of earlier attempts.
    old_before_ms: u64,
    newest_attempt: u32,
    attempt: u32,
    waiting: Option<Sample>,
}

impl Merger {
    /// `newest_attempt` is the number of the attempt by whose time `old_before_ms` counts.
    pub fn new(old_before_ms: u64, newest_attempt: u32) -> Merger {
        Merger {
            old_before_ms,
            newest_attempt,
            attempt: 0,
            waiting: None,
        }
    }

    /// Takes the next line; hands out what is decided by it.
    pub fn push(&mut self, line: Line, mut out: impl FnMut(Line)) {
        match (self.waiting.take(), line) {
            (Some(waiting), Line::Sample(sample)) if self.is_old(&sample) => {
                out(Line::Sample(merged(&waiting, &sample)));
            }
            (waiting, line) => {
                if let Some(waiting) = waiting {
                    out(Line::Sample(waiting));
                }
                match line {
                    Line::Sample(sample) if self.is_old(&sample) => self.waiting = Some(sample),
                    line => {
                        if let Line::Attempt(start) = &line {
                            self.attempt = start.number;
                        }
                        out(line);
                    }
                }
            }
        }
    }

    /// The last line, if one is still held.
    pub fn finish(self) -> Option<Line> {
        self.waiting.map(Line::Sample)
    }

    fn is_old(&self, sample: &Sample) -> bool {
        self.attempt < self.newest_attempt || sample.at_ms < self.old_before_ms
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::AttemptLine;
    use crate::units::Bytes;
    use crate::watch::HostSample;

    fn line(at_ms: u64, used: u64) -> Line {
        Line::Sample(Sample {
            at_ms,
            host: Some(HostSample {
                used: Bytes(used),
                ..HostSample::default()
            }),
            ..Sample::default()
        })
    }

    fn pass(lines: Vec<Line>, old_before_ms: u64) -> Vec<Line> {
        let mut merger = Merger::new(old_before_ms, 0);
        let mut out = Vec::new();
        for line in lines {
            merger.push(line, |line| out.push(line));
        }
        out.extend(merger.finish());
        out
    }

    fn peak(lines: &[Line]) -> Option<(u64, Bytes)> {
        lines
            .iter()
            .filter_map(|line| match line {
                Line::Sample(sample) => Some((sample.at_ms, sample.host?.used)),
                _ => None,
            })
            .max_by_key(|(at_ms, used)| (*used, *at_ms))
    }

    #[test]
    fn the_recent_past_is_kept_whole() {
        let lines: Vec<Line> = (0..100).map(|idx| line(idx * 1000, idx)).collect();
        assert_eq!(pass(lines, 89_000).len(), 45 + 11);
    }

    #[test]
    fn earlier_attempts_are_old_whatever_their_time() {
        let attempt = |number| {
            Line::Attempt(AttemptLine {
                number,
                ..AttemptLine::default()
            })
        };
        let mut lines = vec![attempt(1)];
        lines.extend((0..100).map(|idx| line(1_000_000 + idx, idx)));
        lines.push(attempt(2));
        lines.extend((0..100).map(|idx| line(idx, idx)));
        let mut merger = Merger::new(0, 2);
        let mut n_out = 0;
        for line in lines {
            merger.push(line, |_| n_out += 1);
        }
        assert_eq!(n_out + usize::from(merger.finish().is_some()), 2 + 50 + 100);
    }

    #[test]
    fn a_merged_sample_has_the_highest_and_the_lowest_values() {
        let sample = |at_ms, used, gpu_used: &[u64]| Sample {
            at_ms,
            host: Some(HostSample {
                used: Bytes(used),
                ..HostSample::default()
            }),
            gpus: gpu_used
                .iter()
                .zip(0..)
                .map(|(used, index)| crate::watch::GpuSample {
                    index,
                    used: Bytes(*used),
                    ..crate::watch::GpuSample::default()
                })
                .collect(),
            ..Sample::default()
        };
        let first = merged(&sample(1, 5, &[7]), &sample(2, 3, &[9, 4]));
        let all = merged(&first, &sample(3, 4, &[8, 2]));
        assert_eq!((all.at_ms, all.host.unwrap().used), (1, Bytes(5)));
        assert_eq!(
            all.gpus
                .iter()
                .map(|gpu| gpu.used.get())
                .collect::<Vec<_>>(),
            [9, 4]
        );
        assert_eq!(all.lowest_host_used(), Some(Bytes(3)));
        assert_eq!(
            (
                all.lowest_gpu_used(0),
                all.lowest_gpu_used(1),
                all.lowest_gpu_used(2)
            ),
            (Some(Bytes(7)), Some(Bytes(2)), None)
        );
        let line = Line::Sample(all.clone()).to_json();
        assert!(
            line.contains(r#""lowest":{"host_used_bytes":3,"gpu_used_bytes":[[0,7],[1,2]]}"#),
            "{line}"
        );
    }

    proptest! {
        #[test]
        fn no_merging_loses_the_lowest_value(used in prop::collection::vec(0_u64..1000, 1..200), old in 0_u64..300_000) {
            let lines: Vec<Line> = used.iter().zip(0_u64..).map(|(used, idx)| line(idx * 1000, *used)).collect();
            let lines = pass(pass(lines, old), old);
            let lowest = lines.iter().filter_map(|line| match line {
                Line::Sample(sample) => sample.lowest_host_used(),
                _ => None,
            });
            prop_assert_eq!(lowest.min(), used.iter().min().copied().map(Bytes));
        }

        #[test]
        fn no_merging_loses_the_peak(used in prop::collection::vec(0_u64..1000, 1..200), old in 0_u64..100_000) {
            let lines: Vec<Line> = used.iter().zip(0_u64..).map(|(used, idx)| line(idx * 1000, *used)).collect();
            let before = peak(&lines);
            let mut lines = pass(lines, old);
            prop_assert_eq!(peak(&lines), before);
            lines = pass(lines, old);
            prop_assert_eq!(peak(&lines), before);
        }
    }
}
