//! `brimful explain`.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use brimful::explain::{ErrorFile, Evidence, Verdict, explain as decide, replay_snapshot};
use brimful::record::Record;
use brimful_report::{json, text};
use brimful_supervise::explain_record;

use crate::args::ExplainArguments;
use crate::commands::run::state_dir;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;

/// The end of a log holds the death; its beginning rarely more than the settings.
const MOST_TEXT: u64 = 8 << 20;
/// More than any snapshot that PyTorch writes.
const LARGEST_SNAPSHOT: u64 = 8 << 30;

/// What is to be explained.
struct Subject {
    name: String,
    run: Option<json::RunSummary>,
    attempts: Vec<json::ExplainedAttempt>,
    verdict: Verdict,
}

impl Subject {
    fn of_record(name: String, record: &Record, running: bool, folder: Option<&Path>) -> Subject {
        Subject {
            name,
            run: Some(json::RunSummary::of(record, running)),
            attempts: json::ExplainedAttempt::all_of(record),
            verdict: explain_record(record, folder),
        }
    }

    fn of_verdict(name: String, verdict: Verdict) -> Subject {
        Subject {
            name,
            run: None,
            attempts: Vec::new(),
            verdict,
        }
    }
}

pub(crate) fn explain(
    arguments: &ExplainArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let subject = match arguments.what.as_deref() {
        Some("-") => pasted()?,
        Some(what) if Path::new(what).is_file() => file(Path::new(what))?,
        Some(what) if is_path(what) => {
            return Err(CommandError::NoSuchFile { path: what.into() });
        }
        run => stored(arguments, run)?,
    };
    let page = if arguments.json {
        json::to_text(&json::ExplainDocument::of(
            &subject.name,
            subject.run,
            subject.attempts,
            &subject.verdict,
        ))?
    } else {
        text::explain_attempts(&subject.verdict, &subject.attempts, &Output::page())
    };
    output.print(&page)?;
    Ok(ExitStatus::Success)
}

/// Whether it can only be meant as a file: ids have neither a slash nor an extension.
fn is_path(what: &str) -> bool {
    what.contains('/') || Path::new(what).extension().is_some()
}

/// A run by its id, or the last one.
fn stored(arguments: &ExplainArguments, id: Option<&str>) -> Result<Subject, CommandError> {
    let state = state_dir(&arguments.state).ok_or(CommandError::NoStateDir)?;
    let run = state.find(id)?;
    let record = run.read().map_err(|source| CommandError::Record {
        path: run.record_path(),
        source,
    })?;
    let running = run.is_running();
    if running && !record.has_end() {
        return Err(CommandError::StillRunning { id: run.id });
    }
    let folder = Some(run.folder.as_path());
    Ok(Subject::of_record(run.id.clone(), &record, running, folder))
}

fn pasted() -> Result<Subject, CommandError> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(64 << 20)
        .read_to_end(&mut bytes)
        .map_err(|source| CommandError::Read {
            path: "-".into(),
            source,
        })?;
    Ok(Subject::of_verdict("-".into(), of_text(&bytes)))
}

/// A record, a memory snapshot, an error file of torchelastic, or anything else as text.
fn file(path: &Path) -> Result<Subject, CommandError> {
    let failed = |source| CommandError::Read {
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
        let record = Record::read(file).map_err(|source| CommandError::Record {
            path: path.to_owned(),
            source,
        })?;
        return Ok(Subject::of_record(name, &record, false, path.parent()));
    }
    // Pickles of protocol 2 and later begin with this byte, which no text does.
    if start.first() == Some(&0x80) && length < LARGEST_SNAPSHOT {
        let mut bytes = Vec::new();
        file.take(LARGEST_SNAPSHOT)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        let replay = replay_snapshot(&bytes).map_err(|error| CommandError::Unreadable {
            path: path.to_owned(),
            problem: error.to_string(),
            hint: error.hint().into(),
        })?;
        let verdict = decide(&Evidence {
            replay: Some(replay),
            ..Evidence::default()
        });
        return Ok(Subject::of_verdict(name, verdict));
    }
    file.seek(SeekFrom::Start(length.saturating_sub(MOST_TEXT)))
        .map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MOST_TEXT)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(Subject::of_verdict(name, of_text(&bytes)))
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
