//! Where runs are kept, and what became of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brimful::calendar::civil;
use brimful::explain::Verdict;
use brimful::plan::Observed;
use brimful::record::{Attempt, AttemptLine, Line, Outcome, Record, RecordUnreadable, VerdictLine};
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_private::Missing;

use crate::contain::ATTACHED;
use crate::exit_status;
use crate::explained::{self, explain_record};
use crate::host_name::host_name;
use crate::recorder::{self, FILE_NAME, end_line};

/// A list of runs is read in full; nobody keeps more.
const MAX_RUNS: usize = 100_000;
/// Records that are read in search of the last run in a directory.
const MAX_SEARCHED: usize = 8;
/// Removed at one time: nobody shall wait for it.
const MAX_PRUNED: usize = 50;

/// What was learnt of each job.
pub(crate) const HISTORY: &str = "history";
const RUNS: &str = "runs";
const REHEARSALS: &str = "rehearsals";
/// A file beside a record: a notebook has shown how the run ended.
const SHOWN: &str = "shown";
/// A file beside a record: its rows were written to where the user wants them.
const RECORDED: &str = "recorded";
/// All that brimful keeps in a state directory.
const ENTRIES: &[&str] = &[RUNS, HISTORY, REHEARSALS];

/// The directory in which runs are kept, as the user named it. Where that is shared, each user's files lie in a
/// subdirectory: see [`brimful_private::own_directory`].
#[derive(Clone, Debug)]
pub struct StateDir {
    pub directory: PathBuf,
}

/// One run on disk.
#[derive(Clone, Debug)]
pub struct StoredRun {
    pub id: String,
    pub directory: PathBuf,
}

/// No run of that name.
#[derive(Debug, thiserror::Error)]
pub enum RunNotFound {
    #[error("no run has been recorded in `{}`", directory.display())]
    None { directory: PathBuf },
    #[error("no run `{found}` in `{}`", directory.display())]
    Unknown { directory: PathBuf, found: String },
    #[error("no run was started in `{}` (state directory `{}`)", job_directory.display(), directory.display())]
    NoneIn {
        directory: PathBuf,
        job_directory: PathBuf,
    },
    #[error("run ID `{found}` is ambiguous: {candidates}")]
    Several { found: String, candidates: String },
    #[error("cannot use the state directory `{}`", directory.display())]
    Unusable {
        directory: PathBuf,
        source: io::Error,
    },
}

impl UserError for RunNotFound {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }

    fn hints(&self) -> Vec<Hint> {
        vec![match self {
            RunNotFound::None { .. } => Hint::RecordRun,
            RunNotFound::Unusable { .. } => Hint::ChooseStateDir,
            RunNotFound::Unknown { .. }
            | RunNotFound::NoneIn { .. }
            | RunNotFound::Several { .. } => Hint::ListRuns,
        }]
    }
}

impl StateDir {
    /// The directory that was named, or the one for state by the XDG convention.
    ///
    /// `given` is `--state-dir` or `BRIMFUL_STATE_DIR`, `xdg` is `XDG_STATE_HOME`, `home` is `HOME`.
    pub fn choose(
        given: Option<PathBuf>,
        xdg: Option<PathBuf>,
        home: Option<PathBuf>,
    ) -> Option<StateDir> {
        let directory = given
            .or_else(|| {
                // The convention says to ignore a path that is not absolute.
                let xdg = xdg.filter(|path| path.is_absolute());
                Some(xdg?.join("brimful"))
            })
            .or_else(|| Some(home?.join(".local/state/brimful")))?;
        Some(StateDir { directory })
    }

    /// Where this user's files are: in the directory itself, or in this user's part of a shared one. It is made if it
    /// is missing; another user cannot get into it.
    pub fn own_directory(&self) -> io::Result<PathBuf> {
        brimful_private::own_directory(&self.directory, ENTRIES, Missing::Create)
    }

    /// The same, to read what is there: nothing is made.
    pub(crate) fn existing_directory(&self) -> io::Result<PathBuf> {
        brimful_private::own_directory(&self.directory, ENTRIES, Missing::Fail)
    }

    /// Where rehearsals are kept; `None` where there is no directory that only this user can enter.
    pub fn rehearsals(&self) -> Option<PathBuf> {
        self.own_directory()
            .ok()
            .map(|directory| directory.join(REHEARSALS))
    }

    /// A directory for a new run, named by its moment.
    pub(crate) fn new_run(&self, started_unix_ms: u64) -> io::Result<StoredRun> {
        let runs = brimful_private::create_directory(&self.own_directory()?.join(RUNS))?;
        let stamp = time_stamp(started_unix_ms);
        for attempt in 0..1000_u32 {
            let salt = u64::from(std::process::id()) ^ started_unix_ms ^ (u64::from(attempt) << 7);
            let id = format!("{stamp}-{:04x}", salt & 0xffff);
            let directory = runs.join(&id);
            match brimful_private::new_directory(&directory) {
                Ok(()) => return Ok(StoredRun { id, directory }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Every run, newest first. An error where another user could have put them there.
    pub fn runs(&self) -> Result<Vec<StoredRun>, RunNotFound> {
        let runs = self
            .existing_directory()
            .and_then(|directory| fs::read_dir(directory.join(RUNS)));
        let entries = match runs {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                return Err(RunNotFound::Unusable {
                    directory: self.directory.clone(),
                    source,
                });
            }
        };
        let mut runs: Vec<StoredRun> = entries
            .flatten()
            .take(MAX_RUNS)
            .filter(|entry| brimful_private::is_file(&entry.path().join(FILE_NAME)))
            .filter_map(|entry| {
                Some(StoredRun {
                    id: entry.file_name().into_string().ok()?,
                    directory: entry.path(),
                })
            })
            .collect();
        runs.sort_by(|a, b| b.id.cmp(&a.id));
        Ok(runs)
    }

    /// The run of this id or the beginning or end of one; the newest where none is named.
    pub fn find(&self, id: Option<&str>) -> Result<StoredRun, RunNotFound> {
        let runs = self.runs()?;
        let directory = self.directory.clone();
        let Some(id) = id else {
            return runs
                .into_iter()
                .next()
                .ok_or(RunNotFound::None { directory });
        };
        if let Some(run) = runs.iter().find(|run| run.id == id) {
            return Ok(run.clone());
        }
        let fits: Vec<&StoredRun> = runs
            .iter()
            .filter(|run| run.id.starts_with(id) || run.id.ends_with(id))
            .collect();
        match fits.as_slice() {
            [] => Err(RunNotFound::Unknown {
                directory,
                found: id.to_owned(),
            }),
            [run] => Ok((*run).clone()),
            several => Err(RunNotFound::Several {
                found: id.to_owned(),
                candidates: several
                    .iter()
                    .take(5)
                    .map(|run| run.id.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            }),
        }
    }

    /// Removes the records of old runs but for the newest `keep`; says how many. None that somebody still writes, and
    /// none of the last day.
    pub fn prune(&self, keep: usize, now_unix_ms: u64) -> usize {
        let yesterday = time_stamp(now_unix_ms.saturating_sub(86_400_000));
        let old = self.runs().unwrap_or_default().into_iter().skip(keep);
        old.filter(|run| is_time_stamped(&run.id) && run.id < yesterday)
            .filter(|run| !run.is_running())
            .take(MAX_PRUNED)
            .filter(|run| fs::remove_dir_all(&run.directory).is_ok())
            .count()
    }

    /// Why the newest run of a directory ended, and what was seen of it, if brimful did not live to see its end. Nothing
    /// is changed.
    pub fn interrupted_in(&self, directory: &Path) -> Option<(Verdict, Observed)> {
        let place = place_of(directory);
        let runs = self.runs().ok()?.into_iter().take(MAX_SEARCHED);
        let mut records = runs.filter_map(|run| Some((run.read_as_written().ok()?, run)));
        let host = host_name();
        let (record, run) = records
            .find(|(record, _)| record.run.folder == place && record.run.host_name == host)?;
        let is_open = record.last_attempt()?.end.is_none();
        if !is_open || run.is_running() {
            return None;
        }
        let record = run.read().ok()?;
        let verdict = explain_record(&record, Some(&run.directory));
        Some((verdict, Observed::of(record.last_attempt()?)))
    }

    /// The newest run of this place whose record has no end and that nobody was told about; explained, and marked as
    /// told. The end that a keeper saw becomes the record's.
    pub(crate) fn unfinished_before(&self, place: &str, but: &str) -> Option<Unfinished> {
        // The newest here is enough, since each start tells what it finds, and those whose keeper left something: it may
        // have waited while others came and went.
        let mut is_newest = true;
        for (idx, run) in self
            .runs()
            .unwrap_or_default()
            .into_iter()
            .filter(|run| run.id != but)
            .enumerate()
        {
            let is_sought = is_newest && idx < MAX_SEARCHED;
            if !is_sought && !exit_status::exists(&run.directory) {
                continue;
            }
            let Ok(mut record) = run.read_as_written() else {
                continue;
            };
            if record.run.folder != place {
                continue;
            }
            let open = record.last_attempt().is_none_or(|last| last.end.is_none());
            let told = record
                .last_attempt()
                .is_some_and(|last| last.verdict.is_some());
            if !open || told || recorder::is_being_written(&run.record_path()) {
                is_newest = false;
                continue;
            }
            if exit_status::is_held(&run.directory) {
                let pid = exit_status::read(&run.directory)?.pid;
                return Some(Unfinished::StillRunning { run, pid });
            }
            let mut lines = Vec::new();
            let was_started = !record.attempts.is_empty();
            if !was_started {
                // Killed before the training was on record: before its start, or right after it.
                lines.push(Line::Attempt(AttemptLine {
                    number: 1,
                    ..AttemptLine::default()
                }));
                record.attempts.push(Attempt::default());
            }
            explained::add_what_was_left(&mut record, &run.directory);
            if let Some(last) = record.attempts.last_mut()
                && !was_started
                && last.end.is_none()
                && exit_status::read(&run.directory).is_none()
            {
                let error = "brimful was killed while it was starting the training".into();
                last.end = Some(end_line(0, Outcome::NotStarted { error }));
            }
            let end = record.last_attempt().and_then(|last| last.end.clone());
            lines.extend(end.map(|end| Line::End(Box::new(end))));
            let verdict = explain_record(&record, Some(&run.directory));
            lines.push(Line::Verdict(VerdictLine {
                at_ms: 0,
                verdict,
                n_false_alarms: 0,
            }));
            if recorder::append(&run.record_path(), &lines).is_err() {
                return None;
            }
            exit_status::remove(&run.directory);
            let record = Box::new(run.read().ok()?);
            return Some(Unfinished::CutOff { run, record });
        }
        None
    }
}

/// A run that brimful did not live to see the end of.
#[derive(Debug)]
pub(crate) enum Unfinished {
    CutOff {
        run: StoredRun,
        record: Box<Record>,
    },
    /// Its training still runs.
    StillRunning {
        run: StoredRun,
        pid: u32,
    },
}

impl StoredRun {
    pub fn record_path(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    /// Its record; with what a killed brimful left beside it, where the record has no end.
    pub fn read(&self) -> Result<Record, RecordUnreadable> {
        let mut record = self.read_as_written()?;
        explained::add_what_was_left(&mut record, &self.directory);
        Ok(record)
    }

    fn read_as_written(&self) -> Result<Record, RecordUnreadable> {
        Record::read(brimful_private::open(&self.record_path())?)
    }

    /// Whether this run is that of a process that was there before brimful, such as the kernel of a notebook.
    pub fn is_attached(record: &Record) -> bool {
        record
            .last_attempt()
            .is_some_and(|attempt| attempt.start.containment == ATTACHED)
    }

    /// Records that the end of this run was shown; false if it was recorded before.
    pub fn mark_shown(&self) -> bool {
        brimful_private::create_new(&self.directory.join(SHOWN)).is_ok()
    }

    /// Whether its rows were written to where the user wants them.
    pub fn is_recorded(&self) -> bool {
        self.directory.join(RECORDED).exists()
    }

    /// Remembers that its rows were written.
    pub fn mark_recorded(&self) {
        // Without it they are written again, in place of themselves.
        let _ = brimful_private::create_new(&self.directory.join(RECORDED));
    }

    /// Whether brimful still watches it, or its keeper waits for the end of the training.
    pub fn is_running(&self) -> bool {
        recorder::is_being_written(&self.record_path()) || exit_status::is_held(&self.directory)
    }
}

/// `2026-11-15T10-05-12`, so that names sort by time and are harmless in every file system. UTC.
fn time_stamp(unix_ms: u64) -> String {
    let (date, seconds) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    let (year, month, day) = civil(date);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}-{:02}-{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
}

/// Whether a name begins as those of runs do. Nothing else is ever removed.
fn is_time_stamped(id: &str) -> bool {
    let shape = b"0000-00-00T00-00-00-";
    id.len() > shape.len()
        && id.bytes().zip(shape).all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            other => byte == *other,
        })
}

/// Where a directory may be told as the same place again.
pub(crate) fn place_of(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_named_by_the_calendar() {
        assert_eq!(time_stamp(0), "1970-01-01T00-00-00");
        assert_eq!(time_stamp(951_782_399_000), "2000-02-28T23-59-59");
        assert_eq!(time_stamp(951_782_400_000), "2000-02-29T00-00-00");
        assert_eq!(time_stamp(1_794_736_521_000), "2026-11-15T09-55-21");
    }

    #[test]
    fn the_directory_follows_the_convention() {
        let choose = |given: Option<&str>, xdg: Option<&str>, home: Option<&str>| {
            StateDir::choose(
                given.map(Into::into),
                xdg.map(Into::into),
                home.map(Into::into),
            )
            .map(|state| state.directory.display().to_string())
        };
        assert_eq!(
            choose(Some("x"), Some("/y"), Some("/z")).as_deref(),
            Some("x")
        );
        assert_eq!(
            choose(None, Some("/y"), Some("/z")).as_deref(),
            Some("/y/brimful")
        );
        assert_eq!(
            choose(None, Some("relative"), Some("/z")).as_deref(),
            Some("/z/.local/state/brimful")
        );
        assert_eq!(choose(None, None, None), None);
    }

    #[test]
    fn runs_are_found_by_a_part_of_their_name() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir {
            directory: directory.path().to_owned(),
        };
        assert!(matches!(state.find(None), Err(RunNotFound::None { .. })));
        for at in [0, 1000, 2_000_000] {
            let run = state.new_run(at).unwrap();
            fs::write(run.record_path(), "").unwrap();
        }
        assert!(
            state
                .find(None)
                .unwrap()
                .id
                .starts_with("1970-01-01T00-33-20")
        );
        assert!(state.find(Some("1970-01-01T00-33")).is_ok());
        assert!(matches!(
            state.find(Some("1970")),
            Err(RunNotFound::Several { .. })
        ));
        assert!(matches!(
            state.find(Some("2026")),
            Err(RunNotFound::Unknown { .. })
        ));
    }

    #[test]
    fn only_old_runs_that_nobody_writes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir {
            directory: directory.path().to_owned(),
        };
        let day = 86_400_000;
        let new = |at_ms| {
            let run = state.new_run(at_ms).unwrap();
            fs::write(run.record_path(), "").unwrap();
            run
        };
        let old: Vec<StoredRun> = (0..5).map(|idx| new(idx * day)).collect();
        let kept = new(100 * day);
        let written = recorder::Recorder::create(&old[1].directory);
        let foreign = directory.path().join("runs/mine");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join(FILE_NAME), "").unwrap();

        assert_eq!(state.prune(200, 100 * day), 0);
        // The newest by name is the one that is not ours.
        assert_eq!(state.prune(3, 100 * day), 3);
        let exists = |run: &StoredRun| run.directory.exists();
        assert_eq!(
            old.iter().map(exists).collect::<Vec<_>>(),
            [false, true, false, false, true]
        );
        assert_eq!(state.prune(0, 100 * day), 1);
        assert!(exists(&kept) && exists(&old[1]) && foreign.exists());
        drop(written);
        assert_eq!(state.prune(0, 100 * day), 1);
        assert_eq!(state.prune(0, 102 * day), 1);
        assert!(foreign.exists());
    }
}
