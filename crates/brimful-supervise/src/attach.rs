//! Finds the run that a reader wants to follow.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use brimful::record::{Line, MAX_LINE_BYTES, Record, RecordUnreadable, RunLine};

use crate::follow::RecordFollower;
use crate::recorder;
use crate::state::{RunNotFound, StateDir, StoredRun, place_of};

/// Records whose first line is read in search of a run in a directory.
const MAX_SEARCHED: usize = 1000;
/// An empty record that is younger than this is about to be written.
const BEGINNING: Duration = Duration::from_secs(2);

/// A run to follow. Following takes no lock, sends no signal and looks at no process.
#[derive(Clone, Debug)]
pub enum AttachedRun {
    Stored(StoredRun),
    /// A record that the user named.
    File(PathBuf),
}

impl AttachedRun {
    pub fn follow(&self) -> RecordFollower {
        match self {
            AttachedRun::Stored(run) => RecordFollower::of_run(run),
            AttachedRun::File(path) => RecordFollower::of_file(path),
        }
    }

    /// Whether brimful still watches it, or its keeper waits for the end of the training process.
    pub fn is_running(&self) -> bool {
        match self {
            AttachedRun::Stored(run) => is_running(run),
            AttachedRun::File(path) => recorder::is_being_written(path),
        }
    }

    /// The whole record, with what a killed brimful left beside it.
    pub fn read(&self) -> Result<Record, RecordUnreadable> {
        match self {
            AttachedRun::Stored(run) => run.read(),
            AttachedRun::File(path) => Record::read(brimful_private::open_named(path)?),
        }
    }

    /// The directory in which allocator snapshots lie.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            AttachedRun::Stored(run) => Some(&run.directory),
            AttachedRun::File(path) => path.parent(),
        }
    }
}

impl StateDir {
    /// The run with this ID, or the beginning or end of one; the newest running one of a directory; the newest running
    /// one if nothing is named. Where none is running, the newest that has ended.
    pub fn attach(&self, what: Option<&str>) -> Result<AttachedRun, RunNotFound> {
        let run = match what {
            Some(what) if Path::new(what).is_dir() => self.newest_in(Path::new(what))?,
            Some(id) => self.find(Some(id))?,
            None => {
                let runs = self.runs()?;
                let running = runs.iter().find(|run| is_running(run));
                let newest = running.or(runs.first()).cloned();
                newest.ok_or_else(|| RunNotFound::None {
                    directory: self.directory.clone(),
                })?
            }
        };
        Ok(AttachedRun::Stored(run))
    }

    /// The newest running run that was started in a directory, else the newest one.
    fn newest_in(&self, job_directory: &Path) -> Result<StoredRun, RunNotFound> {
        let resolved = job_directory.canonicalize();
        let place = place_of(resolved.as_deref().unwrap_or(job_directory));
        let mut newest = None;
        for run in self.runs()?.into_iter().take(MAX_SEARCHED) {
            if run.first_line().is_none_or(|first| first.folder != place) {
                continue;
            }
            if is_running(&run) {
                return Ok(run);
            }
            newest.get_or_insert(run);
        }
        newest.ok_or_else(|| RunNotFound::NoneIn {
            directory: self.directory.clone(),
            job_directory: job_directory.to_owned(),
        })
    }
}

/// Whether the writer lives. Asking is to try for the lock that it holds, which never succeeds while it does. Only a
/// writer that has created its record and not locked it yet could lose by that; it is not asked for.
fn is_running(run: &StoredRun) -> bool {
    let is_beginning = std::fs::metadata(run.record_path()).is_ok_and(|found| {
        let age = found
            .modified()
            .map(|at| SystemTime::now().duration_since(at));
        found.len() == 0 && age.is_ok_and(|age| age.is_ok_and(|age| age < BEGINNING))
    });
    is_beginning || run.is_running()
}

impl StoredRun {
    /// How the run was started: the first line of its record, without the rest.
    pub fn first_line(&self) -> Option<RunLine> {
        let file = brimful_private::open(&self.record_path()).ok()?;
        let mut line = Vec::new();
        BufReader::new(file.take(MAX_LINE_BYTES))
            .read_until(b'\n', &mut line)
            .ok()?;
        match Line::from_json(&line)? {
            Line::Run(run) => Some(run),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    fn write(run: &StoredRun, folder: &Path) -> Recorder {
        let mut recorder = Recorder::create(&run.directory);
        recorder.write(&Line::Run(RunLine {
            id: run.id.clone(),
            folder: place_of(folder),
            ..RunLine::default()
        }));
        recorder
    }

    fn id(attached: Result<AttachedRun, RunNotFound>) -> String {
        match attached.unwrap() {
            AttachedRun::Stored(run) => run.id,
            AttachedRun::File(path) => path.display().to_string(),
        }
    }

    #[test]
    fn the_newest_running_run_comes_before_newer_ones_that_have_ended() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let (a, b) = (root.join("a"), root.join("b"));
        std::fs::create_dir(&a).unwrap();
        std::fs::create_dir(&b).unwrap();
        let state = StateDir {
            directory: root.join("state"),
        };
        assert!(matches!(state.attach(None), Err(RunNotFound::None { .. })));
        let runs: Vec<StoredRun> = (0..3).map(|at| state.new_run(at * 1000).unwrap()).collect();
        let running = write(&runs[0], &a);
        drop(write(&runs[1], &a));
        drop(write(&runs[2], &b));

        assert_eq!(id(state.attach(None)), runs[0].id);
        assert_eq!(id(state.attach(a.to_str())), runs[0].id);
        assert_eq!(id(state.attach(b.to_str())), runs[2].id);
        assert_eq!(id(state.attach(Some(&runs[1].id))), runs[1].id);
        assert!(matches!(
            state.attach(root.to_str()),
            Err(RunNotFound::NoneIn { .. })
        ));
        drop(running);
        assert_eq!(id(state.attach(None)), runs[2].id);
        assert_eq!(id(state.attach(a.to_str())), runs[1].id);
    }
}
