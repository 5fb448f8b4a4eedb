//! The job that a request is about.

use std::path::PathBuf;

use brimful::job::{Job, Override};
use brimful_rehearse::job_file;

use crate::error::WorkflowError;

/// Which job, and in which variant.
#[derive(Clone, Debug, Default)]
pub struct JobRequest {
    /// A job file; the one of the working directory without it.
    pub path: Option<PathBuf>,
    /// A mode of the job file, such as `debug`.
    pub mode: Option<String>,
    /// `key=value`, in place of the values in the file.
    pub overrides: Vec<String>,
}

/// A job and the file that describes it.
#[derive(Clone, Debug)]
pub struct FoundJob {
    pub job: Job,
    pub path: PathBuf,
}

/// Reads the job file and applies the overrides.
pub fn find_job(request: &JobRequest) -> Result<FoundJob, WorkflowError> {
    let Some((path, file)) = job_file::find(request.path.as_deref())? else {
        return Err(WorkflowError::NoJob);
    };
    let overrides = request
        .overrides
        .iter()
        .map(|text| text.parse::<Override>())
        .collect::<Result<Vec<_>, _>>()?;
    let job = file.job(request.mode.as_deref(), &overrides)?;
    Ok(FoundJob { job, path })
}
