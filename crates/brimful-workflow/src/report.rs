//! A report: one HTML file about a run, several runs, a snapshot, a trace, a prediction or a plan.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use brimful::explain::Verdict;
use brimful::record::Record;
use brimful::user_error::{ErrorKind, Hint, UserError};
use brimful_allocsim::format::MAGIC;
use brimful_report::html::RenderError;
use brimful_report::html::report::{
    RunOverview, RunReport, compare_report, is_report, plan_report, predict_report, replay_report,
    run_report, runs_report,
};
use brimful_report::json::{DocumentUnreadable, ReplayDocument, SavedDocument};
use brimful_supervise::{StateDir, StoredRun, explain_record, snapshot_beside};

use crate::explain::{ExplainError, is_path};
use crate::replay::{ReplayError, ReplayRequest, replay};

/// Written here if no file is named.
pub const DEFAULT_REPORT: &str = "brimful-report.html";
/// The report of a run that died, beside its record.
const RUN_REPORT: &str = "report.html";
/// A run record in a directory that was named.
const RECORD: &str = "record.jsonl";
/// More than any document of ours.
const MAX_DOCUMENT_BYTES: u64 = 16 << 20;
/// The beginning of a file, by which its kind is known.
const HEAD_BYTES: u64 = 1024;
/// Runs that are compared in one report.
const MAX_RUNS: usize = 200;

/// There is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    NotFound(#[from] ExplainError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("`{}` is not something a report can be made of", path.display())]
    UnknownFile { path: PathBuf },
    #[error("cannot read `{}`", path.display())]
    Document {
        path: PathBuf,
        #[source]
        source: DocumentUnreadable,
    },
    #[error("`{what}` is not a run: only runs can be compared in one report")]
    NotARun { what: String },
    #[error("a report compares at most {MAX_RUNS} runs; {found} were named")]
    TooManyRuns { found: usize },
    #[error("`{}` already exists and is not a report of brimful", path.display())]
    FileExists { path: PathBuf },
    #[error("failed to write `{}`", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("failed to render the report")]
    Render(#[from] RenderError),
}

impl UserError for ReportError {
    fn kind(&self) -> ErrorKind {
        match self {
            ReportError::NotFound(error) => error.kind(),
            ReportError::Replay(error) => error.kind(),
            ReportError::Write { .. } => ErrorKind::Environment,
            ReportError::Render(_) => ErrorKind::Bug,
            ReportError::UnknownFile { .. }
            | ReportError::Document { .. }
            | ReportError::NotARun { .. }
            | ReportError::TooManyRuns { .. }
            | ReportError::FileExists { .. } => ErrorKind::Input,
        }
    }

    fn hints(&self) -> Vec<Hint> {
        match self {
            ReportError::NotFound(ExplainError::NoSuchFile { .. }) => vec![
                Hint::text(
                    "pass a run ID or the path of a file that exists, or no argument for the last run",
                ),
                Hint::ListRuns,
            ],
            ReportError::NotFound(error) => error.hints(),
            ReportError::Replay(error) => error.hints(),
            ReportError::UnknownFile { .. } | ReportError::Document { .. } => vec![Hint::text(
                "pass a run ID, a run record (record.jsonl), a CUDA memory snapshot, a trace, or the JSON of `brimful predict`, `compare`, `plan` or `replay`",
            )],
            ReportError::NotARun { .. } => vec![
                Hint::text("make a report of its own for it"),
                Hint::ListRuns,
            ],
            ReportError::TooManyRuns { .. } => vec![Hint::ListRuns],
            ReportError::FileExists { .. } => vec![Hint::text(
                "choose another file, or remove this one; `brimful report --force` overwrites it",
            )],
            ReportError::Write { .. } => vec![Hint::text(
                "choose a file in a directory that exists and that you may write to",
            )],
            ReportError::Render(_) => Vec::new(),
        }
    }
}

/// The page about these things: one of any kind, or several runs side by side. The last run where nothing is named.
pub fn report(what: &[String], state: Option<&StateDir>) -> Result<String, ReportError> {
    match what {
        [] => recorded(None, state)?.page(),
        [one] => subject(one, state)?.page(),
        several => compare(several, state),
    }
}

/// The page about a document that was printed as JSON.
pub fn report_document(json: &[u8]) -> Result<String, ReportError> {
    let document = SavedDocument::read(json).map_err(|source| ReportError::Document {
        path: "document".into(),
        source,
    })?;
    Subject::Document(document).page()
}

/// Writes a page in one step. A file that is not a report of brimful is replaced only if `force` is set.
pub fn write_report(path: &Path, page: &str, force: bool) -> Result<(), ReportError> {
    check_report_path(path, force)?;
    brimful_private::replace_named(path, page.as_bytes()).map_err(|source| ReportError::Write {
        path: path.to_owned(),
        source,
    })
}

/// Whether a report may be written here, before time is spent on it.
pub fn check_report_path(path: &Path, force: bool) -> Result<(), ReportError> {
    let exists = || ReportError::FileExists {
        path: path.to_owned(),
    };
    let failed = |source| ReportError::Write {
        path: path.to_owned(),
        source,
    };
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    if force {
        return Ok(());
    }
    match brimful_private::open_named(path) {
        Ok(file) => {
            let mut beginning = Vec::new();
            file.take(HEAD_BYTES)
                .read_to_end(&mut beginning)
                .map_err(failed)?;
            if is_report(&beginning) {
                Ok(())
            } else {
                Err(exists())
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // It is there and cannot be read, so nobody knows whose it is.
        Err(_) => Err(exists()),
    }
}

/// Writes the report of a recorded run beside its record.
pub fn report_beside_record(run: &StoredRun) -> Result<PathBuf, ReportError> {
    let page = stored(run)?.page()?;
    let path = run.directory.join(RUN_REPORT);
    match brimful_private::replace(&path, page.as_bytes()) {
        Ok(()) => Ok(path),
        Err(source) => Err(ReportError::Write { path, source }),
    }
}

/// What a report is about.
enum Subject {
    Run(Box<RunSubject>),
    File(PathBuf),
    Document(SavedDocument),
}

struct RunSubject {
    record: Record,
    verdict: Option<Verdict>,
    running: bool,
    /// A snapshot of the allocator beside the record.
    snapshot: Option<PathBuf>,
}

impl RunSubject {
    /// The verdict that was recorded, or a new one; none for a run in progress.
    fn new(record: Record, running: bool, directory: Option<&Path>) -> RunSubject {
        let last = record.last_attempt();
        let recorded = last.and_then(|last| last.verdict.clone());
        let verdict = if running && !record.has_end() {
            None
        } else {
            Some(recorded.unwrap_or_else(|| explain_record(&record, directory)))
        };
        let snapshot = directory.and_then(|directory| snapshot_beside(&record, directory));
        RunSubject {
            record,
            verdict,
            running,
            snapshot,
        }
    }

    fn page(&self) -> Result<String, ReportError> {
        // A snapshot that cannot be replayed leaves the rest of the report as it is.
        let snapshot = self.snapshot.as_deref();
        let snapshot = snapshot.and_then(|path| replayed(path).ok());
        Ok(run_report(&RunReport {
            record: &self.record,
            verdict: self.verdict.as_ref(),
            running: self.running,
            snapshot: snapshot.as_ref(),
        })?)
    }
}

impl Subject {
    fn page(&self) -> Result<String, ReportError> {
        Ok(match self {
            Subject::Run(run) => run.page()?,
            Subject::File(path) => replay_report(&replayed(path)?)?,
            Subject::Document(SavedDocument::Predict(document)) => predict_report(document)?,
            Subject::Document(SavedDocument::Plan(document)) => plan_report(document)?,
            Subject::Document(SavedDocument::Replay(document)) => replay_report(document)?,
            Subject::Document(SavedDocument::Compare(document)) => compare_report(document)?,
        })
    }
}

/// A snapshot or a trace, with what a report shows of it.
fn replayed(path: &Path) -> Result<ReplayDocument, ReplayError> {
    replay(&ReplayRequest {
        file: path.to_owned(),
        with_layout: true,
        ..ReplayRequest::default()
    })
}

fn subject(what: &str, state: Option<&StateDir>) -> Result<Subject, ReportError> {
    let path = Path::new(what);
    if path.is_file() {
        return file(path);
    }
    let inside = path.join(RECORD);
    if inside.is_file() {
        return file(&inside);
    }
    if is_path(what) {
        return Err(ExplainError::NoSuchFile { path: path.into() }.into());
    }
    Ok(Subject::Run(Box::new(recorded(Some(what), state)?)))
}

fn recorded(id: Option<&str>, state: Option<&StateDir>) -> Result<RunSubject, ReportError> {
    let state = state.ok_or(ExplainError::NoStateDir)?;
    stored(&state.find(id).map_err(ExplainError::from)?)
}

fn stored(run: &StoredRun) -> Result<RunSubject, ReportError> {
    let record = run.read().map_err(|source| ExplainError::Record {
        path: run.record_path(),
        source,
    })?;
    Ok(RunSubject::new(
        record,
        run.is_running(),
        Some(&run.directory),
    ))
}

fn file(path: &Path) -> Result<Subject, ReportError> {
    let failed = |source| ExplainError::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = brimful_private::open_named(path).map_err(failed)?;
    let mut start = Vec::new();
    (&file)
        .take(HEAD_BYTES)
        .read_to_end(&mut start)
        .map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    if start.starts_with(b"{\"line\":\"run\"") {
        let record = Record::read(file).map_err(|source| ExplainError::Record {
            path: path.to_owned(),
            source,
        })?;
        let run = RunSubject::new(record, false, path.parent());
        return Ok(Subject::Run(Box::new(run)));
    }
    // Pickles of protocol 2 and later begin with this byte, which no text does.
    if start.first() == Some(&0x80) || start.starts_with(MAGIC) {
        return Ok(Subject::File(path.to_owned()));
    }
    if start.trim_ascii_start().first() != Some(&b'{') {
        return Err(ReportError::UnknownFile {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    let document = SavedDocument::read(&bytes).map_err(|source| ReportError::Document {
        path: path.to_owned(),
        source,
    })?;
    Ok(Subject::Document(document))
}

/// Several runs: each is reduced to a row before the next is read.
fn compare(what: &[String], state: Option<&StateDir>) -> Result<String, ReportError> {
    if what.len() > MAX_RUNS {
        return Err(ReportError::TooManyRuns { found: what.len() });
    }
    let mut rows = Vec::new();
    for name in what {
        match subject(name, state)? {
            Subject::Run(run) => rows.push(overview(&run)),
            Subject::File(_) | Subject::Document(_) => {
                return Err(ReportError::NotARun { what: name.clone() });
            }
        }
    }
    Ok(runs_report(&rows)?)
}

fn overview(run: &RunSubject) -> RunOverview {
    let mut row = RunOverview::of(&run.record, run.running);
    if let Some(verdict) = &run.verdict {
        row.summary.cause = Some(verdict.cause.id().to_owned());
        row.summary.summary = Some(verdict.summary.clone());
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reports_of_brimful_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.html");
        let page = runs_report(&[]).unwrap();
        write_report(&path, &page, false).unwrap();
        write_report(&path, &page, false).unwrap();
        for content in ["", "<!doctype html><p>mine</p>", "notes"] {
            std::fs::write(&path, content).unwrap();
            let refused = write_report(&path, &page, false).unwrap_err();
            assert!(
                matches!(refused, ReportError::FileExists { .. }),
                "{refused}"
            );
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        write_report(&path, &page, true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), page);
        assert!(matches!(
            write_report(directory.path(), &page, true),
            Err(ReportError::Write { .. })
        ));
        assert!(matches!(
            write_report(&directory.path().join("missing/report.html"), &page, false),
            Err(ReportError::Write { .. })
        ));
    }

    #[test]
    fn what_is_no_subject_of_a_report_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("what");
        let name = path.display().to_string();
        for (content, expected) in [
            ("text", "not something a report can be made of"),
            ("{\"gpus\": 3}", "cannot read"),
            ("{}", "cannot read"),
        ] {
            std::fs::write(&path, content).unwrap();
            let error = report(std::slice::from_ref(&name), None).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(!error.hints().is_empty());
        }
        let missing = report(&["no/such.jsonl".into()], None).unwrap_err();
        assert!(missing.to_string().contains("does not exist"));
        assert!(report(&[], None).is_err());
    }
}
