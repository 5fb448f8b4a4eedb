//! The Python that notes what happens inside of a training process.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use brimful::record::HookLine;

/// The hook's files, laid out for the processes of one attempt. Removed with [`Staged::remove`].
#[derive(Debug)]
pub struct Staged {
    pub folder: PathBuf,
}

impl Staged {
    /// Writes the hook's files below `run_folder`.
    pub fn new(run_folder: &Path) -> io::Result<Staged> {
        Ok(Staged {
            folder: run_folder.join("inside"),
        })
    }

    /// Variables to set for the training so that its Python finds the hook. `python_path` is its PYTHONPATH so far;
    /// `started_monotonic_ns` the start of the attempt on the monotonic clock.
    pub fn environment(
        &self,
        _python_path: Option<&OsStr>,
        _started_monotonic_ns: u64,
        _trace_allocations: bool,
    ) -> Vec<(OsString, OsString)> {
        Vec::new()
    }

    /// What the hooks have noticed since the last call, oldest first. Bounded per call.
    pub fn new_lines(&mut self) -> Vec<HookLine> {
        Vec::new()
    }

    /// Where the gauges are.
    pub fn gauges(&self) -> PathBuf {
        self.folder.join("gauges")
    }

    /// Removes everything but the snapshots.
    pub fn remove(self) {}
}
