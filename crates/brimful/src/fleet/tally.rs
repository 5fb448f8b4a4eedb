//! Counting rows, one after the other.

use std::collections::BTreeMap;

use crate::fleet::row::{AttemptRow, SCHEMA_VERSION};
use crate::fleet::values::Values;

/// Jobs that are counted one by one. Rows of further jobs count in everything but the list of jobs.
const MAX_JOBS: usize = 100_000;
/// Causes, of which there is a closed list; a file may name others.
const MAX_CAUSES: usize = 64;
/// Jobs of the result.
const MAX_LISTED: usize = 20;
/// What is unused is weighted by time, so that a run of a minute does not count as much as one of a week.
const SECONDS_PER_HOUR: f64 = 3600.0;

/// What many runs teach.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fleet {
    pub n_runs: u64,
    pub n_attempts: u64,
    /// Rows of a newer brimful, which are not counted.
    pub n_newer_rows: u64,
    /// Starts of the first and the last attempt, in milliseconds since 1970.
    pub first_unix_ms: Option<i64>,
    pub last_unix_ms: Option<i64>,
    /// Runs whose last attempt ran out of memory.
    pub n_died_of_memory: u64,
    /// Runs that ran out of memory, restarted, and finished.
    pub n_came_back: u64,
    /// Of failures for any cause.
    pub wasted_gpu_hours: f64,
    pub wasted_hours: f64,
    /// Time of all attempts, times their GPUs.
    pub gpu_hours: f64,
    pub hours: f64,
    /// Of attempts that did not finish, most frequent first.
    pub causes: Vec<CauseTally>,
    pub host: HeadroomTally,
    pub gpu: HeadroomTally,
    pub host_prediction: PredictionTally,
    pub gpu_prediction: PredictionTally,
    /// Jobs that ran out of memory, those that did most often first.
    pub jobs: Vec<JobTally>,
    /// Jobs that ran out of memory beyond those.
    pub n_jobs_left_out: u64,
}

/// Attempts that ended for one cause.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CauseTally {
    pub cause: String,
    pub is_memory: bool,
    pub n_attempts: u64,
    pub wasted_gpu_hours: f64,
}

/// Memory that finished attempts did not use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeadroomTally {
    pub n_attempts: u64,
    /// Share of the limit that was never used, weighted by bytes and time.
    pub unused_share: Option<f64>,
    /// The same in bytes times hours, of each limit once.
    pub unused_byte_hours: f64,
    /// Half of the attempts left more than this share of their limit unused.
    pub median_unused_share: Option<f64>,
}

/// Predicted against measured peaks of finished attempts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PredictionTally {
    pub n_attempts: u64,
    /// Half of the predictions are below this: likely value over measured peak, minus one.
    pub median_error: Option<f64>,
    pub p90_absolute_error: Option<f64>,
    /// Attempts that used more than the safe value.
    pub n_above_safe: u64,
}

/// A job that ran out of memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobTally {
    pub job: String,
    pub script: Option<String>,
    pub n_runs: u64,
    /// Attempts that ran out of memory.
    pub n_out_of_memory: u64,
    /// Runs that finished.
    pub n_finished: u64,
    pub wasted_gpu_hours: f64,
    pub last_cause: Option<String>,
    pub last_unix_ms: i64,
}

#[derive(Debug, Default)]
struct Unused {
    byte_hours: f64,
    limit_byte_hours: f64,
    shares: Values,
}

#[derive(Debug, Default)]
struct Errors {
    signed: Values,
    absolute: Values,
    n_above_safe: u64,
}

/// Counts rows in any order. Its size is bounded, however many there are.
#[derive(Debug, Default)]
pub struct Tally {
    fleet: Fleet,
    causes: BTreeMap<String, CauseTally>,
    jobs: BTreeMap<String, JobTally>,
    n_memory_beyond: u64,
    host: Unused,
    gpu: Unused,
    host_errors: Errors,
    gpu_errors: Errors,
}

impl Tally {
    pub fn add(&mut self, row: &AttemptRow) {
        if row.schema_version > SCHEMA_VERSION {
            self.fleet.n_newer_rows += 1;
            return;
        }
        let hours = positive(row.seconds) / SECONDS_PER_HOUR;
        let wasted = positive(row.wasted_gpu_hours);
        let has_finished = row.outcome == "finished";
        let at = row.started_at_unix_ms;
        let fleet = &mut self.fleet;
        fleet.n_attempts += 1;
        fleet.first_unix_ms = Some(fleet.first_unix_ms.map_or(at, |first| first.min(at)));
        fleet.last_unix_ms = Some(fleet.last_unix_ms.map_or(at, |last| last.max(at)));
        fleet.hours += hours;
        fleet.gpu_hours += hours * f64::from(row.n_gpus.max(0));
        fleet.wasted_gpu_hours += wasted;
        fleet.wasted_hours += positive(row.wasted_seconds) / SECONDS_PER_HOUR;
        if row.is_last {
            fleet.n_runs += 1;
            fleet.n_died_of_memory += u64::from(row.is_memory);
            fleet.n_came_back += u64::from(row.rungs > 0 && has_finished);
        }
        if let Some(cause) = &row.cause {
            self.add_cause(cause, row.is_memory, wasted);
        }
        if has_finished {
            self.host
                .add(row.host_limit_bytes, row.host_peak_bytes, hours);
            self.gpu.add(row.gpu_size_bytes, row.gpu_peak_bytes, hours);
            self.host_errors.add(
                row.host_likely_bytes,
                row.host_safe_bytes,
                row.host_peak_bytes,
            );
            self.gpu_errors
                .add(row.gpu_likely_bytes, row.gpu_safe_bytes, row.gpu_peak_bytes);
        }
        self.add_job(row, wasted, has_finished);
    }

    fn add_cause(&mut self, cause: &str, is_memory: bool, wasted: f64) {
        let is_full = self.causes.len() >= MAX_CAUSES;
        let name = if is_full && !self.causes.contains_key(cause) {
            "other"
        } else {
            cause
        };
        let tally = self.causes.entry(name.to_owned()).or_default();
        name.clone_into(&mut tally.cause);
        tally.is_memory |= is_memory;
        tally.n_attempts += 1;
        tally.wasted_gpu_hours += wasted;
    }

    fn add_job(&mut self, row: &AttemptRow, wasted: f64, has_finished: bool) {
        let Some(job) = &row.job else { return };
        if self.jobs.len() >= MAX_JOBS && !self.jobs.contains_key(job) {
            self.n_memory_beyond += u64::from(row.is_memory);
            return;
        }
        let tally = self.jobs.entry(job.clone()).or_insert_with(|| JobTally {
            job: job.clone(),
            ..JobTally::default()
        });
        tally.n_runs += u64::from(row.is_last);
        tally.n_finished += u64::from(row.is_last && has_finished);
        tally.n_out_of_memory += u64::from(row.is_memory);
        tally.wasted_gpu_hours += wasted;
        let is_newest = row.started_at_unix_ms >= tally.last_unix_ms;
        if tally.script.is_none() || is_newest {
            tally.script.clone_from(&row.script);
        }
        if is_newest {
            tally.last_unix_ms = row.started_at_unix_ms;
        }
        if row.is_memory && (tally.last_cause.is_none() || is_newest) {
            tally.last_cause.clone_from(&row.cause);
        }
    }

    pub fn finish(self) -> Fleet {
        let mut causes: Vec<CauseTally> = self.causes.into_values().collect();
        causes.sort_by(|a, b| b.n_attempts.cmp(&a.n_attempts).then(a.cause.cmp(&b.cause)));
        let mut jobs: Vec<JobTally> = self
            .jobs
            .into_values()
            .filter(|job| job.n_out_of_memory > 0)
            .collect();
        jobs.sort_by(|a, b| {
            let by_count = b.n_out_of_memory.cmp(&a.n_out_of_memory);
            by_count
                .then(b.wasted_gpu_hours.total_cmp(&a.wasted_gpu_hours))
                .then(a.job.cmp(&b.job))
        });
        let n_jobs = jobs.len();
        jobs.truncate(MAX_LISTED);
        Fleet {
            causes,
            n_jobs_left_out: (n_jobs - jobs.len()) as u64 + self.n_memory_beyond,
            jobs,
            host: self.host.finish(),
            gpu: self.gpu.finish(),
            host_prediction: self.host_errors.finish(),
            gpu_prediction: self.gpu_errors.finish(),
            ..self.fleet
        }
    }
}

impl Unused {
    fn add(&mut self, limit: Option<i64>, peak: Option<i64>, hours: f64) {
        let (Some(limit), Some(peak)) = (limit, peak) else {
            return;
        };
        if limit <= 0 {
            return;
        }
        let unused = limit.saturating_sub(peak.max(0)).max(0) as f64;
        self.shares.add(unused / limit as f64);
        self.byte_hours += unused * hours;
        self.limit_byte_hours += limit as f64 * hours;
    }

    fn finish(self) -> HeadroomTally {
        HeadroomTally {
            n_attempts: self.shares.count(),
            unused_share: (self.limit_byte_hours > 0.0)
                .then(|| self.byte_hours / self.limit_byte_hours),
            unused_byte_hours: self.byte_hours,
            median_unused_share: self.shares.quantile(0.5),
        }
    }
}

impl Errors {
    fn add(&mut self, likely: Option<i64>, safe: Option<i64>, peak: Option<i64>) {
        let (Some(likely), Some(peak)) = (likely, peak) else {
            return;
        };
        if peak <= 0 {
            return;
        }
        let error = likely as f64 / peak as f64 - 1.0;
        self.signed.add(error);
        self.absolute.add(error.abs());
        self.n_above_safe += u64::from(safe.is_some_and(|safe| peak > safe));
    }

    fn finish(self) -> PredictionTally {
        PredictionTally {
            n_attempts: self.signed.count(),
            median_error: self.signed.quantile(0.5),
            p90_absolute_error: self.absolute.quantile(0.9),
            n_above_safe: self.n_above_safe,
        }
    }
}

/// A number of a file, which may be anything.
fn positive(number: f64) -> f64 {
    if number.is_finite() {
        number.max(0.0)
    } else {
        0.0
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "small whole numbers are exact")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(run: &str, outcome: &str) -> AttemptRow {
        AttemptRow {
            schema_version: SCHEMA_VERSION,
            run: run.into(),
            job: Some("j".into()),
            script: Some("train.py".into()),
            attempt: 1,
            is_last: true,
            seconds: 3600.0,
            outcome: outcome.into(),
            n_gpus: 2,
            ..AttemptRow::default()
        }
    }

    fn out_of_memory(run: &str) -> AttemptRow {
        AttemptRow {
            cause: Some("cuda_oom_exhausted".into()),
            is_memory: true,
            wasted_seconds: 1800.0,
            wasted_gpu_hours: 1.0,
            ..row(run, "failed")
        }
    }

    fn fleet(rows: &[AttemptRow]) -> Fleet {
        let mut tally = Tally::default();
        for row in rows {
            tally.add(row);
        }
        tally.finish()
    }

    #[test]
    fn runs_that_came_back_and_runs_that_died_are_told_apart() {
        let first = AttemptRow {
            is_last: false,
            ..out_of_memory("a")
        };
        let second = AttemptRow {
            attempt: 2,
            rungs: 1,
            ..row("a", "finished")
        };
        let found = fleet(&[first, second, out_of_memory("b"), row("c", "finished")]);
        assert_eq!((found.n_runs, found.n_attempts), (3, 4));
        assert_eq!((found.n_came_back, found.n_died_of_memory), (1, 1));
        assert_eq!(found.wasted_gpu_hours, 2.0);
        assert_eq!(found.gpu_hours, 8.0);
        assert_eq!(found.causes.len(), 1);
        assert_eq!(found.causes[0].n_attempts, 2);
        let job = &found.jobs[0];
        assert_eq!((job.n_runs, job.n_out_of_memory, job.n_finished), (3, 2, 2));
    }

    #[test]
    fn rows_of_a_newer_version_are_counted_and_not_used() {
        let newer = AttemptRow {
            schema_version: SCHEMA_VERSION + 1,
            ..out_of_memory("a")
        };
        let found = fleet(&[newer, row("b", "finished")]);
        assert_eq!((found.n_newer_rows, found.n_attempts), (1, 1));
        assert!(found.causes.is_empty());
    }

    #[test]
    fn unused_memory_is_weighted_by_time() {
        let with = |seconds, peak| AttemptRow {
            seconds,
            host_limit_bytes: Some(100),
            host_peak_bytes: Some(peak),
            ..row("a", "finished")
        };
        let found = fleet(&[with(3600.0, 10), with(3.0 * 3600.0, 90)]).host;
        assert_eq!(found.n_attempts, 2);
        assert_eq!(found.unused_share, Some(0.3));
        assert_eq!(found.median_unused_share, Some(0.1));
    }

    #[test]
    fn errors_of_predictions_are_those_of_attempts_that_finished() {
        let with = |outcome, peak| AttemptRow {
            gpu_likely_bytes: Some(90),
            gpu_safe_bytes: Some(110),
            gpu_peak_bytes: Some(peak),
            ..row("a", outcome)
        };
        let found = fleet(&[
            with("finished", 100),
            with("finished", 120),
            with("failed", 10),
        ]);
        let found = found.gpu_prediction;
        assert_eq!((found.n_attempts, found.n_above_safe), (2, 1));
        assert_eq!(found.median_error, Some(-0.25));
    }

    #[test]
    fn jobs_that_ran_out_of_memory_most_often_are_first() {
        let of_job = |job: &str| AttemptRow {
            job: Some(job.into()),
            ..out_of_memory("a")
        };
        let mut rows = vec![of_job("once")];
        rows.extend(vec![of_job("thrice"); 3]);
        rows.extend((0..30).map(|idx| of_job(&format!("other{idx}"))));
        let found = fleet(&rows);
        assert_eq!(found.jobs[0].job, "thrice");
        assert_eq!(found.jobs.len(), MAX_LISTED);
        assert_eq!(found.n_jobs_left_out, 12);
    }

    proptest! {
        #[test]
        fn the_order_of_rows_does_not_matter(order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle()) {
            let rows = [
                out_of_memory("a"),
                row("b", "finished"),
                AttemptRow { job: Some("k".into()), ..out_of_memory("c") },
                AttemptRow { host_limit_bytes: Some(8), host_peak_bytes: Some(3), ..row("d", "finished") },
                AttemptRow { seconds: f64::NAN, ..row("e", "failed") },
                AttemptRow { started_at_unix_ms: 5, ..out_of_memory("f") },
            ];
            let shuffled: Vec<AttemptRow> = order.iter().map(|at| rows[*at].clone()).collect();
            prop_assert_eq!(fleet(&shuffled), fleet(&rows));
        }
    }
}
