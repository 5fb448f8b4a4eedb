//! How full each memory was over a run, in a fixed number of columns.

use crate::record::read::{Attempt, Record};
use crate::units::Bytes;
use crate::watch::Sample;

/// GPUs that get curves of their own.
const MAX_GPUS: usize = 64;
/// A pause between two attempts is shown in its length up to this; a clock that was set does not stretch the axis.
const MAX_PAUSE_MS: u64 = 86_400_000;
/// A time after which nothing is expected: keeps sums of hostile times from overflowing.
const MAX_MS: u64 = u64::MAX >> 8;

/// A memory that a curve is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measured {
    /// Host memory of the job.
    Host,
    /// Host memory of everything inside the limit: the job, and whatever else counts against the same limit.
    HostTotal,
    /// A GPU, as the driver counts.
    Gpu(u32),
    /// `/dev/shm`.
    SharedMemory,
}

/// The lowest and the highest value in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub lowest: Bytes,
    pub highest: Bytes,
}

/// One memory over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    pub measured: Measured,
    /// The newest known limit or size.
    pub limit: Option<Bytes>,
    /// `None` where nothing was sampled.
    pub columns: Vec<Option<Extent>>,
}

impl Curve {
    /// The highest value of all columns.
    pub fn highest(&self) -> Option<Bytes> {
        let columns = self.columns.iter().flatten();
        columns.map(|extent| extent.highest).max()
    }
}

/// One attempt on the time axis of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptSpan {
    pub start_ms: u64,
    pub end_ms: u64,
}

/// The attempts of a run one after the other, in milliseconds since the first began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeAxis {
    pub attempts: Vec<AttemptSpan>,
}

impl TimeAxis {
    pub fn of(record: &Record) -> TimeAxis {
        let mut attempts: Vec<AttemptSpan> = Vec::with_capacity(record.attempts.len());
        let began = record
            .attempts
            .first()
            .map_or(0, |attempt| attempt.start.started_at_unix_ms);
        for attempt in &record.attempts {
            let before = attempts.last().map_or(0, |span| span.end_ms);
            let by_clock = attempt.start.started_at_unix_ms.saturating_sub(began);
            let pause = by_clock.saturating_sub(before);
            let start_ms = if attempts.is_empty() || pause > MAX_PAUSE_MS {
                before
            } else {
                before.saturating_add(pause).min(MAX_MS)
            };
            attempts.push(AttemptSpan {
                start_ms,
                end_ms: start_ms.saturating_add(attempt.duration_ms()).min(MAX_MS),
            });
        }
        TimeAxis { attempts }
    }

    /// The end of the last attempt.
    pub fn end_ms(&self) -> u64 {
        self.attempts.last().map_or(0, |span| span.end_ms)
    }
}

impl Attempt {
    /// From its start to its end, or to the last that was seen of it.
    pub fn duration_ms(&self) -> u64 {
        let end = self.end.as_ref().map(|end| end.at_ms);
        let last = self.samples.last().map(|sample| sample.at_ms);
        end.or(last).unwrap_or(0).min(MAX_MS)
    }
}

/// The curves of a run between two moments of its time axis, in this many columns.
///
/// A column has the lowest and the highest value of all samples in it: no peak is lost, however long the run was. A column
/// between two samples that are close to each other has the value of the earlier one.
pub fn curves(
    record: &Record,
    axis: &TimeAxis,
    (from_ms, to_ms): (u64, u64),
    n_columns: usize,
) -> Vec<Curve> {
    let measured = measured(record);
    let mut curves: Vec<Curve> = measured
        .iter()
        .map(|measured| Curve {
            measured: *measured,
            limit: None,
            columns: vec![None; n_columns],
        })
        .collect();
    let span = u128::from(to_ms.saturating_sub(from_ms).max(1));
    let column = |at_ms: u64| {
        let past = u128::from(at_ms.saturating_sub(from_ms));
        usize::try_from(past * n_columns as u128 / span).unwrap_or(usize::MAX)
    };
    for curve in &mut curves {
        for (attempt, within) in record.attempts.iter().zip(&axis.attempts) {
            // The next column, and what it holds until the next sample.
            let mut before: Option<(usize, Bytes)> = None;
            for sample in with_last(attempt) {
                let Some(found) = value(sample, curve.measured) else {
                    continue;
                };
                curve.limit = found.limit.or(curve.limit);
                let at_ms = within.start_ms.saturating_add(sample.at_ms);
                let highest = found.extent.highest;
                if at_ms < from_ms {
                    before = Some((0, highest));
                    continue;
                }
                if at_ms > to_ms {
                    continue;
                }
                let at = column(at_ms).min(n_columns.saturating_sub(1));
                if let Some((next, value)) = before {
                    let held = Extent {
                        lowest: value,
                        highest: value,
                    };
                    for cell in curve.columns.iter_mut().take(at).skip(next) {
                        cell.get_or_insert(held);
                    }
                }
                before = Some((at + 1, highest));
                if let Some(cell) = curve.columns.get_mut(at) {
                    let extent = cell.get_or_insert(found.extent);
                    extent.lowest = extent.lowest.min(found.extent.lowest);
                    extent.highest = extent.highest.max(found.extent.highest);
                }
            }
        }
    }
    curves
}

/// The samples of an attempt and, where it has one, the last before its end.
fn with_last(attempt: &Attempt) -> impl Iterator<Item = &Sample> {
    let last = attempt.end.as_ref().and_then(|end| end.last.as_ref());
    attempt.samples.iter().chain(last)
}

/// Every memory that was sampled.
fn measured(record: &Record) -> Vec<Measured> {
    let samples = || record.attempts.iter().flat_map(with_last);
    let mut measured = Vec::new();
    if samples().any(|sample| sample.host.is_some()) {
        measured.extend([Measured::Host, Measured::HostTotal]);
    }
    let mut gpus: Vec<u32> = Vec::new();
    for gpu in samples().flat_map(|sample| &sample.gpus) {
        if gpus.len() < MAX_GPUS && !gpus.contains(&gpu.index) {
            gpus.push(gpu.index);
        }
    }
    gpus.sort_unstable();
    measured.extend(gpus.into_iter().map(Measured::Gpu));
    if samples().any(|sample| sample.shm.is_some()) {
        measured.push(Measured::SharedMemory);
    }
    measured
}

/// A value of one sample, and the limit it counts against.
struct Found {
    extent: Extent,
    limit: Option<Bytes>,
}

fn value(sample: &Sample, measured: Measured) -> Option<Found> {
    let found = |highest: Bytes, lowest: Option<Bytes>, limit: Bytes| Found {
        extent: Extent {
            lowest: lowest.unwrap_or(highest).min(highest),
            highest,
        },
        limit: (limit > Bytes::ZERO).then_some(limit),
    };
    Some(match measured {
        Measured::Host => {
            let host = sample.host?;
            found(host.used, sample.lowest_host_used(), host.limit)
        }
        Measured::HostTotal => {
            let host = sample.host?;
            let used = host.limit.saturating_sub(host.headroom).max(host.used);
            found(used, None, host.limit)
        }
        Measured::Gpu(index) => {
            let gpu = sample.gpus.iter().find(|gpu| gpu.index == index)?;
            found(gpu.used, sample.lowest_gpu_used(index), gpu.total)
        }
        Measured::SharedMemory => {
            let shm = sample.shm?;
            found(shm.used, sample.lowest_shm_used(), shm.total)
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::AttemptLine;
    use crate::watch::HostSample;

    fn attempt(started_at_unix_ms: u64, used: &[(u64, u64)]) -> Attempt {
        Attempt {
            start: AttemptLine {
                started_at_unix_ms,
                ..AttemptLine::default()
            },
            samples: used
                .iter()
                .map(|(at_ms, used)| Sample {
                    at_ms: *at_ms,
                    host: Some(HostSample {
                        used: Bytes(*used),
                        limit: Bytes(1000),
                        headroom: Bytes(1000_u64.saturating_sub(*used)),
                        swapped: None,
                    }),
                    ..Sample::default()
                })
                .collect(),
            ..Attempt::default()
        }
    }

    fn record(attempts: Vec<Attempt>) -> Record {
        Record {
            attempts,
            ..Record::default()
        }
    }

    fn host(record: &Record, n_columns: usize) -> Vec<Option<(u64, u64)>> {
        let axis = TimeAxis::of(record);
        let curves = curves(record, &axis, (0, axis.end_ms()), n_columns);
        assert_eq!(curves[0].measured, Measured::Host);
        curves[0]
            .columns
            .iter()
            .map(|extent| extent.map(|extent| (extent.lowest.get(), extent.highest.get())))
            .collect()
    }

    #[test]
    fn a_column_has_the_lowest_and_the_highest_of_its_samples() {
        let run = record(vec![attempt(
            0,
            &[(0, 5), (10, 9), (20, 1), (60, 4), (100, 3)],
        )]);
        assert_eq!(
            host(&run, 4),
            [Some((1, 9)), Some((1, 1)), Some((4, 4)), Some((3, 3))],
            "a column without a sample has the last value"
        );
    }

    #[test]
    fn attempts_follow_each_other_with_the_pause_between_them() {
        let run = record(vec![
            attempt(1_000, &[(0, 1), (100, 1)]),
            attempt(1_200, &[(0, 2), (100, 2)]),
            attempt(u64::MAX, &[(0, 3), (100, 3)]),
        ]);
        let axis = TimeAxis::of(&run);
        let spans: Vec<(u64, u64)> = axis
            .attempts
            .iter()
            .map(|span| (span.start_ms, span.end_ms))
            .collect();
        assert_eq!(spans, [(0, 100), (200, 300), (300, 400)]);
        assert_eq!(
            host(&run, 4),
            [Some((1, 1)), Some((1, 1)), Some((2, 2)), Some((2, 3))]
        );
    }

    #[test]
    fn a_window_has_only_what_is_in_it() {
        let run = record(vec![attempt(0, &[(0, 5), (50, 9), (90, 1), (100, 2)])]);
        let axis = TimeAxis::of(&run);
        let found = curves(&run, &axis, (80, 100), 2);
        let highest: Vec<_> = found[0]
            .columns
            .iter()
            .map(|c| c.map(|c| c.highest.get()))
            .collect();
        assert_eq!(highest, [Some(9), Some(2)]);
    }

    proptest! {
        #[test]
        fn no_column_loses_a_peak_or_a_low_and_nothing_panics(
            samples in prop::collection::vec((any::<u64>(), 0_u64..1000), 1..300),
            started in any::<u64>(),
            n_columns in 0_usize..900,
        ) {
            let run = record(vec![attempt(0, &[(1, 1)]), attempt(started, &samples)]);
            let axis = TimeAxis::of(&run);
            let found = curves(&run, &axis, (0, axis.end_ms()), n_columns);
            prop_assert!(found.iter().all(|curve| curve.columns.len() == n_columns));

            let mut sorted = samples.clone();
            sorted.sort_unstable();
            let run = record(vec![attempt(0, &sorted)]);
            let axis = TimeAxis::of(&run);
            if n_columns > 0 && axis.end_ms() >= sorted[sorted.len() - 1].0 {
                let found = curves(&run, &axis, (0, axis.end_ms()), n_columns);
                let columns = || found[0].columns.iter().flatten();
                let expected = sorted.iter().map(|(_, used)| *used);
                prop_assert_eq!(columns().map(|c| c.highest.get()).max(), expected.clone().max());
                prop_assert_eq!(columns().map(|c| c.lowest.get()).min(), expected.min());
            }
        }
    }
}
