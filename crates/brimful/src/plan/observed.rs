//! What was seen of an attempt, for the next plan: bytes by process, the rate of its steps.

use serde::{Deserialize, Serialize};

use crate::record::{Attempt, HookLine};
use crate::units::Bytes;
use crate::watch::{ProcessSample, Role, Sample};

/// What was seen of an attempt. What was not seen is absent, never zero.
///
/// It is made of the attempt's record alone, so a record of yesterday teaches the same today.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// How long the attempt ran.
    pub wall_ms: u64,
    /// Host memory of the job at its fullest, and the brim.
    #[serde(rename = "host_used_bytes")]
    pub host_used: Option<Bytes>,
    #[serde(rename = "host_limit_bytes")]
    pub host_limit: Option<Bytes>,
    /// The least that was left to the brim for everybody.
    #[serde(rename = "host_headroom_bytes")]
    pub least_headroom: Option<Bytes>,
    /// The process that trains, of several ranks the largest: what is its own, and what it shares with others.
    #[serde(rename = "main_private_bytes")]
    pub main_private: Option<Bytes>,
    #[serde(rename = "main_shared_bytes")]
    pub main_shared: Option<Bytes>,
    /// Processes that train together, as far as they were seen.
    pub n_ranks: u64,
    /// DataLoader workers at the moment at which they held the most, and what was their own.
    pub n_workers: u64,
    #[serde(rename = "worker_private_median_bytes")]
    pub worker_private_median: Option<Bytes>,
    #[serde(rename = "worker_private_max_bytes")]
    pub worker_private_max: Option<Bytes>,
    /// What one worker shared with others at that moment, by the median.
    #[serde(rename = "worker_shared_median_bytes")]
    pub worker_shared_median: Option<Bytes>,
    /// `/dev/shm` at its fullest; others may be in it.
    #[serde(rename = "shm_used_bytes")]
    pub shm_used: Option<Bytes>,
    /// What PyTorch's allocator had of one card at the most.
    #[serde(rename = "gpu_reserved_bytes")]
    pub gpu_reserved: Option<Bytes>,
    /// What it handed out of that at the most.
    #[serde(rename = "gpu_allocated_bytes")]
    pub gpu_allocated: Option<Bytes>,
    /// Optimizer steps made, of several ranks by the one with the most.
    pub steps: u64,
    /// Of these, steps between the first and the last look at which they were seen to go on, and the seconds in between.
    pub timed_steps: u64,
    pub timed_seconds: f64,
    /// Whether a CUDA out-of-memory error came in an evaluation, where that could be told.
    pub evaluating: Option<bool>,
}

/// Fewer steps or seconds than this are mostly warming up.
const LEAST_STEPS: u64 = 2;
const LEAST_SECONDS: f64 = 1.0;

impl Observed {
    /// What an attempt's record shows.
    pub fn of(attempt: &Attempt) -> Observed {
        let end = attempt.end.as_ref();
        let last = end.and_then(|end| end.last.as_ref());
        let mut seen = Observed {
            host_limit: attempt.start.limit,
            ..Observed::default()
        };
        let mut pace = Pace::default();
        let mut workers_hold = None;
        for sample in attempt.samples.iter().chain(last) {
            seen.wall_ms = seen.wall_ms.max(sample.at_ms);
            seen.take_figures(sample);
            seen.take_processes(&sample.processes, &mut workers_hold);
            pace.look(sample);
        }
        if let Some(end) = end {
            seen.wall_ms = end.at_ms;
            let peaks = &end.peaks;
            seen.host_used = seen.host_used.max(peaks.host_used);
            seen.shm_used = seen.shm_used.max(peaks.shm_used);
            seen.least_headroom = least(seen.least_headroom, peaks.least_headroom);
        }
        seen.steps = pace.steps;
        (seen.timed_steps, seen.timed_seconds) = pace.timed();
        // The last one is what ended it; those before were caught.
        for line in &attempt.hook {
            if let HookLine::CudaOom(proof) = line {
                seen.evaluating = proof.evaluating;
                seen.gpu_reserved = seen.gpu_reserved.max(some(proof.reserved));
                seen.gpu_allocated = seen.gpu_allocated.max(some(proof.allocated));
            }
        }
        seen
    }

    /// Optimizer steps per second, where enough of them were seen.
    pub fn steps_per_second(&self) -> Option<f64> {
        let enough = self.timed_steps >= LEAST_STEPS && self.timed_seconds >= LEAST_SECONDS;
        enough.then(|| self.timed_steps as f64 / self.timed_seconds)
    }

    fn take_figures(&mut self, sample: &Sample) {
        if let Some(host) = &sample.host {
            self.host_used = self.host_used.max(Some(host.used));
            self.host_limit = self.host_limit.or(Some(host.limit));
            self.least_headroom = least(self.least_headroom, Some(host.headroom));
        }
        if let Some(shm) = &sample.shm {
            self.shm_used = self.shm_used.max(Some(shm.used));
        }
        for gauge in sample.gauges.iter().filter(|gauge| gauge.device.is_some()) {
            self.gpu_reserved = self.gpu_reserved.max(some(gauge.peak_reserved));
            self.gpu_allocated = self.gpu_allocated.max(some(gauge.peak_allocated));
        }
    }

    fn take_processes(&mut self, processes: &[ProcessSample], workers_hold: &mut Option<Bytes>) {
        let ranks = processes
            .iter()
            .filter(|process| matches!(process.role, Role::Rank { .. }));
        let n_ranks = ranks.clone().count() as u64;
        self.n_ranks = self.n_ranks.max(n_ranks);
        // Where there are ranks, what was started is their launcher.
        let trains = |process: &&ProcessSample| match process.role {
            Role::Rank { .. } => true,
            Role::Main => n_ranks == 0,
            _ => false,
        };
        let largest = processes
            .iter()
            .filter(trains)
            .max_by_key(|process| process.private);
        if let Some(process) = largest
            && self
                .main_private
                .is_none_or(|before| process.private > before)
        {
            self.main_private = Some(process.private);
            self.main_shared = Some(process.shared);
        }
        let workers: Vec<&ProcessSample> = processes
            .iter()
            .filter(|process| matches!(process.role, Role::Worker { .. }))
            .collect();
        let hold = workers.iter().fold(Bytes::ZERO, |sum, process| {
            sum.saturating_add(process.private)
        });
        if workers.is_empty() || workers_hold.is_some_and(|before| hold <= before) {
            return;
        }
        *workers_hold = Some(hold);
        self.n_workers = workers.len() as u64;
        let figures = |of: fn(&ProcessSample) -> Bytes| {
            let mut figures: Vec<Bytes> = workers.iter().map(|process| of(process)).collect();
            figures.sort_unstable();
            figures
        };
        let private = figures(|process| process.private);
        self.worker_private_median = private.get(private.len() / 2).copied();
        self.worker_private_max = private.last().copied();
        self.worker_shared_median = figures(|process| process.shared)
            .get(workers.len() / 2)
            .copied();
    }
}

/// When steps were seen to go on, of the process that made the most.
#[derive(Debug, Default)]
struct Pace {
    steps: u64,
    pid: u32,
    /// Of each process at its first look: steps and time.
    first: Vec<(u32, u64, u64)>,
    /// Of the process with the most: when its count was first seen.
    last_ms: u64,
}

/// More training processes than this on one machine do not make the rate any better known.
const MAX_PROCESSES: usize = 256;

impl Pace {
    fn look(&mut self, sample: &Sample) {
        for gauge in sample.gauges.iter().filter(|gauge| gauge.steps > 0) {
            let known = self.first.iter().any(|(pid, ..)| *pid == gauge.pid);
            if !known && self.first.len() < MAX_PROCESSES {
                self.first.push((gauge.pid, gauge.steps, sample.at_ms));
            }
            if gauge.steps > self.steps {
                self.steps = gauge.steps;
                self.pid = gauge.pid;
                self.last_ms = sample.at_ms;
            }
        }
    }

    fn timed(&self) -> (u64, f64) {
        let first = self.first.iter().find(|(pid, ..)| *pid == self.pid);
        let Some((_, steps, at_ms)) = first else {
            return (0, 0.0);
        };
        let seconds = self.last_ms.saturating_sub(*at_ms) as f64 / 1000.0;
        (self.steps.saturating_sub(*steps), seconds)
    }
}

fn least(a: Option<Bytes>, b: Option<Bytes>) -> Option<Bytes> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// A gauge without a figure has zero.
fn some(bytes: Bytes) -> Option<Bytes> {
    (bytes > Bytes::ZERO).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AttemptLine, EndLine, GpuProof, KernelCounts, Outcome, OwnCost, Peaks};
    use crate::watch::{Gauge, HostSample, SharedMemorySample};

    fn process(pid: u32, role: Role, private_mib: u64) -> ProcessSample {
        ProcessSample {
            pid,
            role,
            name: "python".into(),
            private: Bytes(private_mib << 20),
            shared: Bytes(7 << 20),
            swapped: Bytes::ZERO,
        }
    }

    fn worker(worker: u32, private_mib: u64) -> ProcessSample {
        process(
            100 + worker,
            Role::Worker { loader: 0, worker },
            private_mib,
        )
    }

    fn stepping(at_ms: u64, pid: u32, steps: u64) -> Sample {
        Sample {
            at_ms,
            gauges: vec![Gauge {
                pid,
                steps,
                device: Some(0),
                peak_reserved: Bytes(steps << 20),
                ..Gauge::default()
            }],
            ..Sample::default()
        }
    }

    fn of(samples: Vec<Sample>) -> Observed {
        Observed::of(&Attempt {
            samples,
            ..Attempt::default()
        })
    }

    #[test]
    fn an_attempt_that_nobody_saw_teaches_nothing() {
        assert_eq!(Observed::of(&Attempt::default()), Observed::default());
    }

    #[test]
    fn the_rate_is_between_the_first_and_the_last_step_seen() {
        let seen = of(vec![
            Sample::default(),
            stepping(10_000, 7, 1),
            stepping(15_000, 7, 11),
            stepping(20_000, 7, 21),
            // Evaluating, or dying: no step any more.
            stepping(90_000, 7, 21),
        ]);
        assert_eq!(
            (seen.steps, seen.timed_steps, seen.timed_seconds),
            (21, 20, 10.0)
        );
        assert_eq!(seen.steps_per_second(), Some(2.0));
        assert_eq!(seen.gpu_reserved, Some(Bytes(21 << 20)));
        assert_eq!(seen.wall_ms, 90_000);
        assert_eq!(of(vec![stepping(5, 7, 3)]).steps_per_second(), None);
    }

    #[test]
    fn the_rate_of_ranks_is_that_of_one() {
        let mut samples = vec![
            stepping(0, 7, 1),
            stepping(10_000, 7, 11),
            stepping(20_000, 7, 21),
        ];
        for sample in &mut samples {
            let mut other = sample.gauges[0].clone();
            other.pid = 8;
            sample.gauges.push(other);
        }
        assert_eq!(of(samples).steps_per_second(), Some(1.0));
    }

    #[test]
    fn workers_are_told_at_their_fullest_moment() {
        let at = |processes| Sample {
            processes,
            ..Sample::default()
        };
        let seen = of(vec![
            at(vec![process(1, Role::Main, 900), worker(0, 10)]),
            at(vec![
                process(1, Role::Main, 800),
                worker(0, 100),
                worker(1, 300),
                worker(2, 200),
            ]),
            at(vec![process(1, Role::Main, 850)]),
        ]);
        assert_eq!(seen.n_workers, 3);
        assert_eq!(seen.worker_private_median, Some(Bytes(200 << 20)));
        assert_eq!(seen.worker_private_max, Some(Bytes(300 << 20)));
        assert_eq!(seen.worker_shared_median, Some(Bytes(7 << 20)));
        assert_eq!(seen.main_private, Some(Bytes(900 << 20)));
        assert_eq!(seen.n_ranks, 0);
    }

    #[test]
    fn a_launcher_is_not_what_trains() {
        let seen = of(vec![Sample {
            processes: vec![
                process(1, Role::Main, 5000),
                process(2, Role::Rank { rank: 0 }, 300),
                process(3, Role::Rank { rank: 1 }, 400),
            ],
            ..Sample::default()
        }]);
        assert_eq!(seen.n_ranks, 2);
        assert_eq!(seen.main_private, Some(Bytes(400 << 20)));
    }

    #[test]
    fn peaks_of_the_end_count_where_samples_missed_them() {
        let sample = Sample {
            at_ms: 250,
            host: Some(HostSample {
                used: Bytes(100),
                limit: Bytes(1000),
                headroom: Bytes(800),
                swapped: None,
            }),
            shm: Some(SharedMemorySample {
                used: Bytes(5),
                total: Bytes(64),
            }),
            ..Sample::default()
        };
        let seen = Observed::of(&Attempt {
            start: AttemptLine {
                limit: Some(Bytes(990)),
                ..AttemptLine::default()
            },
            samples: vec![sample],
            hook: vec![HookLine::CudaOom(GpuProof {
                evaluating: Some(true),
                reserved: Bytes(77),
                ..GpuProof::default()
            })],
            end: Some(EndLine {
                at_ms: 900,
                outcome: Outcome::Killed { signal: 9 },
                kernel: KernelCounts::default(),
                peaks: Peaks {
                    host_used: Some(Bytes(950)),
                    least_headroom: Some(Bytes(3)),
                    ..Peaks::default()
                },
                last: None,
                n_left_behind: 0,
                orphans: Vec::new(),
                own_cost: OwnCost::default(),
            }),
            ..Attempt::default()
        });
        assert_eq!(seen.host_used, Some(Bytes(950)));
        assert_eq!(seen.host_limit, Some(Bytes(990)));
        assert_eq!(seen.least_headroom, Some(Bytes(3)));
        assert_eq!(seen.shm_used, Some(Bytes(5)));
        assert_eq!(seen.evaluating, Some(true));
        assert_eq!(seen.gpu_reserved, Some(Bytes(77)));
        assert_eq!(seen.wall_ms, 900);
        let text = serde_json::to_string(&seen).unwrap();
        assert_eq!(serde_json::from_str::<Observed>(&text).unwrap(), seen);
    }
}
