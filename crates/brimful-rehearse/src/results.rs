//! What the hook wrote: one result per process, and the script's output.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use brimful::printable::is_printable;
use brimful::speed::CapturedStep;
use brimful_allocsim::from_snapshot::EmptyCacheCalls;
use brimful_allocsim::snapshot;
use brimful_allocsim::trace::Trace;

use crate::error::RehearsalError;
use crate::facts::Facts;

/// The last of the script's output that is kept for a message.
const TAIL: u64 = 16 << 10;
/// Characters of a message about results that cannot be read.
const MAX_MESSAGE: usize = 300;
/// More than any snapshot of a rehearsal.
const MAX_RESULT_BYTES: u64 = 2 << 30;
/// More than the operators of any step: the hook keeps 20,000 different calls.
const MAX_OPS_BYTES: u64 = 64 << 20;

/// One process of the script.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    pub facts: Facts,
    pub trace: Trace,
    /// What one step computes; nothing where none could be captured.
    pub step: Option<CapturedStep>,
    /// The script ended with an error, after its first steps.
    pub died: bool,
    /// It ended where the card's memory ran out, and nothing is known of a run with more room.
    pub ran_out: bool,
}

/// What the processes wrote whose facts are in files of this ending.
pub(crate) fn read_results(
    folder: &Path,
    ending: &str,
    on_cpus: bool,
) -> Result<Vec<Rehearsed>, RehearsalError> {
    // A message about JSON quotes what it found, which may be as long as the file.
    let unreadable = |what: &dyn std::fmt::Display| RehearsalError::Result {
        what: (what.to_string().chars())
            .map(|c| if is_printable(c) { c } else { ' ' })
            .take(MAX_MESSAGE)
            .collect(),
    };
    let mut processes = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(&error))? {
        let path = entry.map_err(|error| unreadable(&error))?.path();
        if path.extension().is_none_or(|extension| extension != ending) {
            continue;
        }
        let facts = bounded(&path, MAX_RESULT_BYTES).map_err(|error| unreadable(&error))?;
        let facts: Facts = serde_json::from_slice(&facts).map_err(|error| unreadable(&error))?;
        let snapshot = path.with_extension("snapshot");
        let trace = if snapshot.exists() {
            let bytes = bounded(&snapshot, MAX_RESULT_BYTES).map_err(|error| unreadable(&error))?;
            trace_of(&bytes, &facts)?
        } else if on_cpus {
            Trace::default()
        } else {
            continue;
        };
        processes.push(Rehearsed {
            facts,
            trace,
            step: captured_step(&path.with_extension("ops")),
            died: false,
            ran_out: false,
        });
    }
    processes.sort_by_key(|process| process.facts.rank);
    Ok(processes)
}

/// The end of a file.
pub(crate) fn tail(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    brimful::secrets::mask_text(&String::from_utf8_lossy(&read().unwrap_or_default()))
}

/// The operators of a step. Memory is what a rehearsal is for: it is no error that there are none.
fn captured_step(path: &Path) -> Option<CapturedStep> {
    let bytes = bounded(path, MAX_OPS_BYTES).ok()?;
    let step: CapturedStep = serde_json::from_slice(&bytes).ok()?;
    (!step.ops.is_empty()).then_some(step)
}

pub(crate) fn bounded(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    if read as u64 == limit {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("more than {limit} bytes of results"),
        ));
    }
    Ok(bytes)
}

fn trace_of(bytes: &[u8], facts: &Facts) -> Result<Trace, RehearsalError> {
    let snapshot = snapshot::read(bytes)?;
    let mut trace = Trace::from_snapshot(&snapshot, facts.device, EmptyCacheCalls::LeaveOut);
    trace.torch.clone_from(&facts.torch);
    snapshot
        .alloc_conf()
        .unwrap_or_default()
        .clone_into(&mut trace.settings);
    let marks: Vec<(u64, String)> = facts
        .marks
        .iter()
        .map(|(count, kind, text)| (*count, format!("{kind}:{text}")))
        .collect();
    trace.insert_marks(&marks, "empty_cache:");
    trace.check().map_err(|error| RehearsalError::Result {
        what: error.to_string(),
    })?;
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_results_is_short_and_printable() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = format!("{{\"marks\": \"\\u001b{}\"}}", "x".repeat(100_000));
        fs::write(directory.path().join("7.json"), text).expect("a disk");
        let message = read_results(directory.path(), "json", true)
            .expect_err("marks are a list")
            .to_string();
        assert!(
            message.len() < 1000 && message.chars().all(is_printable),
            "{message}"
        );
    }
}
