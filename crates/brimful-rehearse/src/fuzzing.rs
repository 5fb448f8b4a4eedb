//! What fuzz targets call: the parsers of the files of a rehearsal.

use std::io;
use std::path::{Path, PathBuf};

use brimful::job::draft::Accepts;
use brimful::plan::Pace;
use brimful::predict::host::HostFacts;

use crate::accepts::{self, Written};
use crate::connections::{self, Connections};
use crate::error::RehearsalError;
use crate::events::{Event, Progress, ProgressFile};
use crate::planning::{Cache, Kept, Key};
use crate::reports::{self, LastStep};
use crate::results::{self, Rehearsed};

/// The lines of progress, read as often as the supervisor of a rehearsal would.
#[derive(Debug)]
pub struct ProgressReader(ProgressFile);

impl ProgressReader {
    pub fn new(path: PathBuf) -> ProgressReader {
        ProgressReader(ProgressFile::new(path))
    }

    pub fn read(&mut self) -> Vec<Progress> {
        self.0.read()
    }
}

/// How far a rehearsal came, and what it left undone.
pub fn reported(events: &[Event]) -> (LastStep, Vec<String>) {
    (LastStep::of(events), reports::suppressed(events))
}

/// `PID.json` and `PID.snapshot` of every process.
pub fn results(directory: &Path, on_cpus: bool) -> Result<Vec<Rehearsed>, RehearsalError> {
    results::read_results(directory, "json", on_cpus)
}

/// The file `connections`.
pub fn connections(directory: &Path) -> Connections {
    connections::read(directory)
}

/// What the hook wrote about the options of a script.
pub fn accepted(path: &Path) -> Option<Accepts> {
    match accepts::read(path)? {
        Written::Options(accepts) => Some(accepts),
        Written::Problem { .. } => None,
    }
}

/// Keeps a rehearsal, and gives the directory of its entry.
pub fn keep(directory: &Path, process: Rehearsed) -> io::Result<PathBuf> {
    let kept = Kept {
        processes: vec![process],
        ..Kept::default()
    };
    let cache = cache(directory);
    cache.put(&Key::default(), &kept, &[])?;
    Ok(cache.folder_of(&Key::default()))
}

/// What was kept, as far as it is believed.
pub fn kept(directory: &Path) -> Option<(Vec<Rehearsed>, HostFacts, Pace)> {
    let kept = cache(directory).get(&Key::default())?;
    Some((kept.processes, kept.host, kept.pace))
}

fn cache(directory: &Path) -> Cache {
    Cache {
        folder: directory.to_owned(),
    }
}
