//! What a rehearsal is asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use brimful::predict::AssumedCase;

use crate::protection::Protection;

/// What to rehearse.
#[derive(Debug, Clone)]
pub struct RehearsalRequest {
    pub command: Vec<OsString>,
    /// `libbrimful_phantom.so`.
    pub phantom: PathBuf,
    /// On CPUs, without any GPU; `variants` then has one that is empty.
    pub on_cpus: bool,
    /// For each card to rehearse on, descriptions for the phantom that are tried in turn until the script does not die
    /// of memory.
    pub variants: Vec<Vec<String>>,
    /// What to assume of values that only the model could compute.
    pub assumed: AssumedCase,
    pub steps: u32,
    /// Of `eval` and `save`, what to go on for after the steps.
    pub with: Vec<String>,
    /// In place of the environment's own settings.
    pub alloc_conf: Option<String>,
    pub time_limit: Duration,
    /// Where the script's own output goes; into a temporary file without it.
    pub output: Option<PathBuf>,
    pub protection: Protection,
}
