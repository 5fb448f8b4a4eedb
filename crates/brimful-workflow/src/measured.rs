//! What runs measured on GPUs: stored when a run has ended, and read for the next prediction.

use std::ffi::OsString;

use brimful::plan::{GpuMeasurement, Measurements};
use brimful_probe::GpuMeter;
use brimful_supervise::{StateDir, StoredRun, job_file_stem, job_key};

use crate::state::working_directory;

/// The digest of a command without a job file: the same in `run`, `predict` and `verify`.
pub fn command_digest(command: &[OsString]) -> String {
    let words: Vec<String> = command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    job_file_stem(&job_key(&working_directory(), &words))
}

/// Stores what the attempts of a run measured on their GPU, for the next prediction. Called after the training process
/// has ended; what cannot be stored is not.
pub fn remember_gpu(state: Option<&StateDir>, run: &StoredRun) {
    let Some((state, record)) = state.zip(run.read().ok()) else {
        return;
    };
    for attempt in &record.attempts {
        if let Some(measured) = GpuMeasurement::of(attempt, &record.run.job) {
            let _ = state.remember_gpu(&measured);
        }
    }
}

/// What earlier runs measured, for a job. The driver is asked only if there is something to compare with.
pub(crate) fn measurements(state: Option<&StateDir>, job: String) -> Measurements {
    let runs = state.map_or_else(Vec::new, StateDir::gpu_measurements);
    let gpus = || GpuMeter::live().known()?.driver_version();
    Measurements {
        driver: if runs.is_empty() { None } else { gpus() },
        runs,
        job,
    }
}
