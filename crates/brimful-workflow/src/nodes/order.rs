//! What the ranks of one node need to know for an attempt, in a file of that node.

use std::io;
use std::path::{Path, PathBuf};

use brimful::job::Job;
use brimful::nodes::{Proposal, Torchrun};
use brimful_supervise::checkpoints::Excluded;
use serde::{Deserialize, Serialize};

/// Bytes of an order at most: the texts of config files and 10,000 checkpoints.
const MAX_ORDER: u64 = 64 << 20;

/// What the ranks of one node need to know for an attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) job: Job,
    /// Paths and texts of the config files as they were when the run began.
    pub(crate) config: Vec<(String, String)>,
    /// Where the job was started: patterns of checkpoints are relative to it.
    pub(crate) working_directory: PathBuf,
    /// The directory that all nodes share.
    pub(crate) shared: PathBuf,
    /// The name of the job in it.
    pub(crate) key: String,
    /// What a run that begins now does not resume from.
    pub(crate) excluded: Excluded,
    pub(crate) max_attempts: u32,
    pub(crate) proposal: Proposal,
}

impl Order {
    pub(crate) fn read(path: &Path) -> io::Result<Order> {
        let bytes = brimful_private::read(path, MAX_ORDER)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        brimful_private::write_new(path, &serde_json::to_vec(self)?)
    }
}

/// How a command calls torchrun, which also reads its options from the environment.
pub(crate) fn torchrun(command: &[String]) -> Option<Torchrun> {
    Torchrun::of(command, |name| std::env::var(name).ok())
}
