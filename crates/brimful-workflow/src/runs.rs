//! The recorded runs.

use brimful::fleet::{AttemptRow, rows_of};
use brimful::live::LiveRun;
use brimful::record::Outcome;
use brimful_report::json;
use brimful_supervise::{Followed, RecordFollower, StateDir, StoredRun, explain_record};

use crate::explain::{ExplainError, Explained};

/// Runs among which that of a supervisor is searched, newest first.
const MAX_SEARCHED: usize = 16;

/// Summaries of the recorded runs, newest first; of the `last` ones if a number is given.
pub fn runs(
    state: Option<&StateDir>,
    last: Option<usize>,
) -> Result<json::RunsDocument, ExplainError> {
    let state = state.ok_or(ExplainError::NoStateDir)?;
    let summaries = state
        .runs()?
        .iter()
        .take(last.unwrap_or(usize::MAX))
        .filter_map(|run| {
            let record = run.read().ok()?;
            Some(json::RunSummary::of(&record, run.is_running()))
        })
        .collect();
    let directory = state.directory.display().to_string();
    Ok(json::RunsDocument::of(&directory, summaries))
}

/// A run whose rows are still to be written, and the rows.
#[derive(Debug)]
pub struct UnrecordedRun {
    pub run: StoredRun,
    pub rows: Vec<AttemptRow>,
}

/// The newest runs that were started with this destination of records, have ended, and were not written to it.
///
/// `ended` names a run that has ended although its supervisor is still there. What a run's supervisor could not do
/// because it was killed is done when the next one starts.
pub fn unrecorded_runs(
    state: &StateDir,
    destination: &str,
    ended: Option<&str>,
) -> Result<Vec<UnrecordedRun>, ExplainError> {
    let is_open =
        |run: &StoredRun| !run.is_recorded() && (ended == Some(&run.id) || !run.is_running());
    let found = state.runs()?.into_iter().take(MAX_SEARCHED).filter(is_open);
    Ok(found
        .filter_map(|run| {
            let is_wanted = run.first_line()?.records.as_deref() == Some(destination);
            let mut record = run.read().ok().filter(|_| is_wanted)?;
            if let Some(last) = record.attempts.last()
                && last.verdict.is_none()
            {
                let verdict = explain_record(&record, Some(&run.directory));
                if let Some(last) = record.attempts.last_mut() {
                    last.verdict = Some(verdict);
                }
            }
            let rows = rows_of(&record);
            (!rows.is_empty()).then_some(UnrecordedRun { run, rows })
        })
        .collect())
}

/// The ID of the newest run that the process `pid` of brimful supervises or has supervised.
pub fn run_of_supervisor(state: &StateDir, pid: u32) -> Option<String> {
    let runs = state.runs().ok()?;
    let found = runs.into_iter().take(MAX_SEARCHED).find(|run| {
        run.first_line()
            .is_some_and(|first| first.supervisor_pid == pid)
    });
    found.map(|run| run.id)
}

/// A run in progress, looked at again and again.
#[derive(Debug)]
pub struct RunFollower {
    state: StateDir,
    supervisor_pid: u32,
    since_unix_ms: u64,
    /// Once the run is found.
    record: Option<RecordFollower>,
    live: LiveRun,
}

impl RunFollower {
    /// Follows the run that the process `supervisor_pid` of brimful supervises, started at `since_unix_ms` or later.
    pub fn new(state: StateDir, supervisor_pid: u32, since_unix_ms: u64) -> RunFollower {
        RunFollower {
            state,
            supervisor_pid,
            since_unix_ms,
            record: None,
            live: LiveRun::default(),
        }
    }

    /// Reads what is new; `None` if nothing is.
    pub fn poll(&mut self) -> Option<&LiveRun> {
        if self.record.is_none() {
            let runs = self.state.runs().ok()?;
            // The number of a process may be used again: an older run is another one.
            let found = runs.into_iter().take(MAX_SEARCHED).find(|run| {
                run.first_line().is_some_and(|first| {
                    first.supervisor_pid == self.supervisor_pid
                        && first.started_at_unix_ms >= self.since_unix_ms
                })
            })?;
            self.record = Some(RecordFollower::of_run(&found));
        }
        let live = &mut self.live;
        let is_new = self.record.as_mut()?.poll(|followed| match followed {
            Followed::Restarted => *live = LiveRun::default(),
            Followed::Line(next) => live.take(*next),
        });
        is_new.is_ok_and(|is_new| is_new).then_some(&self.live)
    }
}

/// Why the last watched process of this directory was killed, such as the kernel of a notebook; shown once.
///
/// `None` if it was not killed, if it is still watched, or if it was shown before.
pub fn unshown_kill(state: &StateDir, directory: &str) -> Option<Explained> {
    for run in state.runs().ok()?.into_iter().take(MAX_SEARCHED) {
        let Ok(record) = run.read() else { continue };
        if record.run.folder != directory || !StoredRun::is_attached(&record) {
            continue;
        }
        let end = record.last_attempt().and_then(|last| last.end.as_ref());
        let was_killed = end.is_some_and(|end| matches!(end.outcome, Outcome::Killed { .. }));
        if !was_killed || run.is_running() || !run.mark_shown() {
            return None;
        }
        let name = run.id.clone();
        return Some(Explained::of_record(name, &record, Some(&run.directory)));
    }
    None
}
