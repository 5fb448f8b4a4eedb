//! The outward form of what many runs teach: what `brimful runs --at --json` prints.

use brimful::fleet::{CauseTally, Fleet, HeadroomTally, JobTally, PredictionTally};
use schemars::JsonSchema;
use serde::Serialize;

use crate::json::SCHEMA_VERSION;

/// What the recorded runs of a directory or an object store have in common.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "brimful runs --at")]
pub struct FleetDocument {
    /// The schema version of this document.
    pub schema_version: u32,
    /// The version of brimful that wrote it.
    pub brimful_version: String,
    /// The directory or URL of the records.
    pub at: String,
    /// Number of files; one run writes one file.
    pub n_files: u64,
    /// Files that are incomplete, or no records of brimful. They are not counted in anything else.
    pub n_skipped_files: u64,
    /// The first of them, and what is wrong with it.
    pub first_skipped_file: Option<SkippedFile>,
    /// Files that were not read because there are too many.
    pub n_files_left_out: u64,
    /// Rows of a newer version of brimful, which are not counted.
    pub n_newer_rows: u64,
    /// Number of runs. A run on several nodes counts once for each node.
    pub n_runs: u64,
    /// Number of attempts of all runs.
    pub n_attempts: u64,
    /// Start of the first attempt, in milliseconds since 1970.
    pub first_unix_ms: Option<i64>,
    /// Start of the last attempt, in milliseconds since 1970.
    pub last_unix_ms: Option<i64>,
    /// Runs whose last attempt ran out of memory.
    pub n_died_of_memory: u64,
    /// Runs that ran out of memory, were restarted, and finished.
    pub n_came_back: u64,
    /// GPU hours of all attempts.
    pub gpu_hours: f64,
    /// GPU hours lost to failures of any cause: from the last checkpoint, or else from the start, to the end.
    pub wasted_gpu_hours: f64,
    /// Hours of all attempts.
    pub hours: f64,
    /// Hours lost to failures of any cause.
    pub wasted_hours: f64,
    /// Causes of attempts that did not finish, most frequent first.
    pub causes: Vec<FleetCause>,
    /// Host memory that finished attempts did not use.
    pub host: UnusedMemory,
    /// GPU memory that finished attempts did not use.
    pub gpu: UnusedMemory,
    /// Predicted and measured host memory of finished attempts.
    pub host_prediction: PredictionError,
    /// Predicted and measured GPU memory of finished attempts.
    pub gpu_prediction: PredictionError,
    /// Jobs that ran out of memory, most frequent first; at most 20.
    pub jobs: Vec<FleetJob>,
    /// Jobs that ran out of memory and are not listed.
    pub n_jobs_left_out: u64,
}

/// A file that was not counted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SkippedFile {
    /// The path or URL.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Attempts that ended for one cause.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FleetCause {
    /// One of the closed list of causes, such as `host_oom_kill`.
    pub cause: String,
    /// Whether the cause is memory.
    pub is_memory: bool,
    /// Number of attempts.
    pub n_attempts: u64,
    /// GPU hours they lost.
    pub wasted_gpu_hours: f64,
}

/// Memory that finished attempts did not use.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UnusedMemory {
    /// Attempts of which limit and peak are known.
    pub n_attempts: u64,
    /// The share of all limits above the peaks, weighted by bytes and time.
    pub unused_share: Option<f64>,
    /// The same as bytes times hours.
    pub unused_byte_hours: f64,
    /// The median of the unused shares of the attempts.
    pub median_unused_share: Option<f64>,
}

/// Predicted against measured memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PredictionError {
    /// Attempts with a prediction and a measurement.
    pub n_attempts: u64,
    /// The median of predicted over measured peak, minus one: below zero, predictions are too low.
    pub median_error: Option<f64>,
    /// 90 % of the errors are smaller than this, regardless of their sign.
    pub p90_absolute_error: Option<f64>,
    /// Attempts that used more than the predicted safe value.
    pub n_above_safe: u64,
}

/// A job that ran out of memory.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FleetJob {
    /// A digest of the directory and the command.
    pub job: String,
    /// The file name of its script.
    pub script: Option<String>,
    /// Number of its runs.
    pub n_runs: u64,
    /// Attempts that ran out of memory.
    pub n_out_of_memory: u64,
    /// Runs that finished.
    pub n_finished: u64,
    /// GPU hours lost to its failures.
    pub wasted_gpu_hours: f64,
    /// The cause of the last attempt that ran out of memory.
    pub last_cause: Option<String>,
    /// Start of its last attempt, in milliseconds since 1970.
    pub last_unix_ms: i64,
}

/// The files that were counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetFiles {
    pub at: String,
    pub n_files: u64,
    pub n_skipped: u64,
    /// Path and reason.
    pub first_skipped: Option<(String, String)>,
    pub n_left_out: u64,
}

impl FleetDocument {
    pub fn of(files: FleetFiles, fleet: Fleet) -> FleetDocument {
        FleetDocument {
            schema_version: SCHEMA_VERSION,
            brimful_version: env!("CARGO_PKG_VERSION").into(),
            at: files.at,
            n_files: files.n_files,
            n_skipped_files: files.n_skipped,
            first_skipped_file: files
                .first_skipped
                .map(|(path, reason)| SkippedFile { path, reason }),
            n_files_left_out: files.n_left_out,
            n_newer_rows: fleet.n_newer_rows,
            n_runs: fleet.n_runs,
            n_attempts: fleet.n_attempts,
            first_unix_ms: fleet.first_unix_ms,
            last_unix_ms: fleet.last_unix_ms,
            n_died_of_memory: fleet.n_died_of_memory,
            n_came_back: fleet.n_came_back,
            gpu_hours: fleet.gpu_hours,
            wasted_gpu_hours: fleet.wasted_gpu_hours,
            hours: fleet.hours,
            wasted_hours: fleet.wasted_hours,
            causes: fleet.causes.into_iter().map(FleetCause::of).collect(),
            host: UnusedMemory::of(&fleet.host),
            gpu: UnusedMemory::of(&fleet.gpu),
            host_prediction: PredictionError::of(&fleet.host_prediction),
            gpu_prediction: PredictionError::of(&fleet.gpu_prediction),
            jobs: fleet.jobs.into_iter().map(FleetJob::of).collect(),
            n_jobs_left_out: fleet.n_jobs_left_out,
        }
    }
}

impl FleetCause {
    fn of(tally: CauseTally) -> FleetCause {
        FleetCause {
            cause: tally.cause,
            is_memory: tally.is_memory,
            n_attempts: tally.n_attempts,
            wasted_gpu_hours: tally.wasted_gpu_hours,
        }
    }
}

impl UnusedMemory {
    fn of(tally: &HeadroomTally) -> UnusedMemory {
        UnusedMemory {
            n_attempts: tally.n_attempts,
            unused_share: tally.unused_share,
            unused_byte_hours: tally.unused_byte_hours,
            median_unused_share: tally.median_unused_share,
        }
    }
}

impl PredictionError {
    fn of(tally: &PredictionTally) -> PredictionError {
        PredictionError {
            n_attempts: tally.n_attempts,
            median_error: tally.median_error,
            p90_absolute_error: tally.p90_absolute_error,
            n_above_safe: tally.n_above_safe,
        }
    }
}

impl FleetJob {
    fn of(tally: JobTally) -> FleetJob {
        FleetJob {
            job: tally.job,
            script: tally.script,
            n_runs: tally.n_runs,
            n_out_of_memory: tally.n_out_of_memory,
            n_finished: tally.n_finished,
            wasted_gpu_hours: tally.wasted_gpu_hours,
            last_cause: tally.last_cause,
            last_unix_ms: tally.last_unix_ms,
        }
    }
}
