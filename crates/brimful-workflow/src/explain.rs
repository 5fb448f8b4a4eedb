//! Why something died: a recorded run, a run record, a CUDA memory snapshot, torchelastic's error file, or a log.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use brimful::explain::{ErrorFile, Evidence, Verdict, explain as decide, replay_snapshot};
use brimful::record::{Record, RecordUnreadable};
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_report::json;
use brimful_supervise::{RunNotFound, StateDir, explain_record};

/// Bytes that are read from the end of a log, where the failure is.
const MAX_LOG_BYTES: u64 = 8 << 20;
/// Bytes that are read from standard input or another pipe.
const MAX_STDIN_BYTES: u64 = 64 << 20;
/// More than any snapshot that PyTorch writes.
const MAX_SNAPSHOT_BYTES: u64 = 8 << 30;

/// A verdict and what it is about.
#[derive(Debug)]
pub struct Explained {
    pub name: String,
    pub run: Option<json::RunSummary>,
    pub attempts: Vec<json::ExplainedAttempt>,
    pub verdict: Verdict,
}

impl Explained {
    fn record(name: String, record: &Record, running: bool, directory: Option<&Path>) -> Explained {
        Explained {
            name,
            run: Some(json::RunSummary::of(record, running)),
            attempts: json::ExplainedAttempt::all_of(record),
            verdict: explain_record(record, directory),
        }
    }

    /// The explanation of a run that has ended.
    pub(crate) fn of_record(name: String, record: &Record, directory: Option<&Path>) -> Explained {
        Explained::record(name, record, false, directory)
    }

    fn verdict(name: String, verdict: Verdict) -> Explained {
        Explained {
            name,
            run: None,
            attempts: Vec::new(),
            verdict,
        }
    }

    pub fn document(self) -> json::ExplainDocument {
        json::ExplainDocument::of(&self.name, self.run, self.attempts, &self.verdict)
    }
}

/// There is nothing to explain.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error("failed to read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("file `{}` does not exist", path.display())]
    NoSuchFile { path: PathBuf },
    #[error("cannot explain `{}`: {problem}", path.display())]
    Snapshot {
        path: PathBuf,
        problem: String,
        hint: &'static str,
    },
    #[error("no state directory: --state-dir is not set, and HOME does not name a directory")]
    NoStateDir,
    #[error(transparent)]
    NoSuchRun(#[from] RunNotFound),
    #[error("run {id} is still in progress")]
    StillRunning { id: String },
    #[error("`{}` is not a run record", path.display())]
    Record {
        path: PathBuf,
        #[source]
        source: RecordUnreadable,
    },
}

impl UserError for ExplainError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Input
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            ExplainError::Read { .. } => Vec::new(),
            ExplainError::NoSuchFile { .. } => vec![
                Hint::text(
                    "pass a log, a snapshot or a run ID, or no argument to explain the last run",
                ),
                Hint::ListRuns,
            ],
            ExplainError::Snapshot { hint, .. } => vec![Hint::text(*hint)],
            ExplainError::NoStateDir => vec![Hint::ChooseStateDir],
            ExplainError::NoSuchRun(error) => error.hints(),
            ExplainError::StillRunning { .. } => {
                vec![Hint::text("wait until it ends"), Hint::ListRuns]
            }
            ExplainError::Record { .. } => vec![Hint::text(
                "pass a run record (record.jsonl), a log, or a CUDA memory snapshot",
            )],
        }
    }
}

/// Explains a file, `-` for standard input, a run by its id, or the last run.
pub fn explain(what: Option<&str>, state: Option<&StateDir>) -> Result<Explained, ExplainError> {
    match what {
        Some("-") => standard_input(),
        Some(what) if Path::new(what).is_file() => file(Path::new(what)),
        Some(what) if is_pipe(Path::new(what)) => pipe(Path::new(what)),
        Some(what) if is_path(what) => Err(ExplainError::NoSuchFile { path: what.into() }),
        id => recorded(id, state.ok_or(ExplainError::NoStateDir)?),
    }
}

/// Whether it can only be meant as a file: ids have neither a slash nor an extension.
pub(crate) fn is_path(what: &str) -> bool {
    what.contains('/') || Path::new(what).extension().is_some()
}

/// A run by its id, or the last one.
fn recorded(id: Option<&str>, state: &StateDir) -> Result<Explained, ExplainError> {
    let run = state.find(id)?;
    let record = run.read().map_err(|source| ExplainError::Record {
        path: run.record_path(),
        source,
    })?;
    let running = run.is_running();
    if running && !record.has_end() {
        return Err(ExplainError::StillRunning { id: run.id });
    }
    let directory = Some(run.directory.as_path());
    Ok(Explained::record(
        run.id.clone(),
        &record,
        running,
        directory,
    ))
}

fn standard_input() -> Result<Explained, ExplainError> {
    log(io::stdin().lock(), Path::new("-"))
}

/// Whether it is read like standard input, as what a shell puts in the place of `<(command)`.
fn is_pipe(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|facts| facts.file_type().is_fifo())
}

fn pipe(path: &Path) -> Result<Explained, ExplainError> {
    let pipe = File::open(path).map_err(|source| ExplainError::Read {
        path: path.to_owned(),
        source,
    })?;
    log(pipe, path)
}

/// A log that can be read only once.
fn log(from: impl Read, path: &Path) -> Result<Explained, ExplainError> {
    let mut bytes = Vec::new();
    from.take(MAX_STDIN_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|source| ExplainError::Read {
            path: path.to_owned(),
            source,
        })?;
    Ok(Explained::verdict(
        path.display().to_string(),
        of_text(&bytes),
    ))
}

/// A run record, a memory snapshot, an error file of torchelastic, or anything else as text.
fn file(path: &Path) -> Result<Explained, ExplainError> {
    let failed = |source| ExplainError::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = brimful_private::open_named(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut start = Vec::new();
    (&file).take(64).read_to_end(&mut start).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let name = path.display().to_string();
    if start.starts_with(b"{\"line\":\"run\"") {
        let record = Record::read(file).map_err(|source| ExplainError::Record {
            path: path.to_owned(),
            source,
        })?;
        return Ok(Explained::record(name, &record, false, path.parent()));
    }
    // Pickles of protocol 2 and later begin with this byte, which no text does.
    if start.first() == Some(&0x80) && length < MAX_SNAPSHOT_BYTES {
        let mut bytes = Vec::new();
        file.take(MAX_SNAPSHOT_BYTES)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let replay = replay_snapshot(&bytes).map_err(|error| ExplainError::Snapshot {
            path: path.to_owned(),
            problem: error.to_string(),
            hint: error.hint(),
        })?;
        let verdict = decide(&Evidence {
            replay: Some(replay),
            ..Evidence::default()
        });
        return Ok(Explained::verdict(name, verdict));
    }
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_LOG_BYTES)))
        .map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG_BYTES)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(Explained::verdict(name, of_text(&bytes)))
}

fn of_text(bytes: &[u8]) -> Verdict {
    let text = match ErrorFile::parse(bytes) {
        Some(file) => file.text(),
        None => String::from_utf8_lossy(bytes).into_owned(),
    };
    decide(&Evidence {
        text,
        ..Evidence::default()
    })
}
