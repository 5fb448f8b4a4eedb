//! A run in progress, for the picture below a cell.

use std::path::PathBuf;
use std::sync::Mutex;

use brimful_report::html;
use brimful_workflow::state_dir;
use pyo3::prelude::*;

use crate::border::{Failure, call};

/// Follows the run that a process of brimful supervises.
#[pyclass(frozen, name = "RunFollower", module = "brimful._native")]
pub(crate) struct RunFollower {
    /// `None` without a state directory.
    follower: Option<Mutex<brimful_workflow::RunFollower>>,
}

#[pymethods]
impl RunFollower {
    #[new]
    #[pyo3(signature = (*, supervisor_pid, since_unix_ms, state_dir))]
    fn new(supervisor_pid: u32, since_unix_ms: u64, state_dir: Option<PathBuf>) -> RunFollower {
        RunFollower {
            follower: self::state_dir(state_dir)
                .map(|state| {
                    brimful_workflow::RunFollower::new(state, supervisor_pid, since_unix_ms)
                })
                .map(Mutex::new),
        }
    }

    /// The HTML for a notebook and one line of text; None if nothing was recorded since the last call.
    fn poll(&self, py: Python<'_>) -> PyResult<Option<(String, String)>> {
        let Some(follower) = &self.follower else {
            return Ok(None);
        };
        call(py, || {
            // A panic in another thread leaves nothing half-done here: the next lines are read.
            let mut follower = match follower.lock() {
                Ok(follower) => follower,
                Err(poisoned) => poisoned.into_inner(),
            };
            match follower.poll() {
                Some(run) => html::live(run).map_err(Failure::internal),
                None => Ok(None),
            }
        })
    }
}
