//! What to run, and how.

use std::ffi::OsString;
use std::path::PathBuf;

use brimful::watch::WatchRules;

use crate::state::StateDir;

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct RunSettings {
    pub command: Vec<OsString>,
    pub brimful_version: String,
    /// A digest of the job, the same in all of its runs.
    pub job: String,
    /// The directory or URL that the run's rows are to be written to.
    pub records: Option<String>,
    /// Where runs are kept; `None` where no place is known.
    pub state: Option<StateDir>,
    pub rules: WatchRules,
    /// What makes the training write a checkpoint.
    pub checkpoint_signal: i32,
    /// Say what would be done, do nothing.
    pub dry_run: bool,
    pub hook: bool,
    pub trace_allocations: bool,
    pub metrics_file: Option<PathBuf>,
    /// Whether a status line may be shown, where there is a terminal.
    pub status_line: bool,
    /// The program that keeps the streams open: brimful itself, as [`crate::keeper::keep`].
    pub keeper: Option<PathBuf>,
}
