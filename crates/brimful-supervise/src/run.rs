//! One run: what to run, what is said about it, and what remains where it cannot be supervised.
//!
//! `attempts.rs` makes its attempts one after the other, `start.rs` starts one, `running.rs` goes on from there, `ending.rs` ends it.

use std::ffi::OsString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::time::{SystemTime, UNIX_EPOCH};

use brimful::explain::Verdict;
use brimful::record::{ActionLine, Outcome, Peaks, Record};
use brimful::watch::{Alarm, Sample, WatchRules, WatchState};
use rustix::io::Errno;
use rustix::process::WaitOptions;

use crate::exit_status::{self, Ended};
use crate::ladder::{AttemptEnd, Ladder, NextAttempt};
use crate::last_resort;
use crate::recorder::Recorder;
use crate::signals::{self, Arrived};
use crate::state::{StateDir, StoredRun, place_of};
use crate::steps::{StartStep, panic_message, step};
use crate::terminal;

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct RunSettings {
    pub command: Vec<OsString>,
    pub brimful_version: String,
    /// Where runs are kept; `None` where no place is known.
    pub state: Option<StateDir>,
    pub rules: WatchRules,
    /// What makes the training write a checkpoint.
    pub checkpoint_signal: i32,
    /// Say what would be done, do nothing.
    pub dry_run: bool,
    pub hook: bool,
    pub trace_allocations: bool,
    pub metrics_file: Option<PathBuf>,
    /// Whether a status line may be shown, where there is a terminal.
    pub status_line: bool,
    /// The program that keeps the streams open: brimful itself, as [`crate::keeper::keep`].
    pub keeper: Option<PathBuf>,
}

/// Something worth a line.
#[derive(Clone, Debug)]
pub enum Notice<'a> {
    /// The last run in this place was cut off.
    CutOff {
        run: &'a StoredRun,
        record: &'a Record,
        verdict: &'a Verdict,
    },
    /// The last run here lost brimful, and its training still runs, as this process.
    StillRunning {
        run: &'a StoredRun,
        pid: u32,
    },
    /// Something could not be done; the training goes on.
    Gap(&'a str),
    /// Nothing can be supervised, for this reason: the command takes the place of brimful.
    Unsupervised(&'a str),
    Alarm(&'a Alarm),
    Action(&'a ActionLine),
    /// An attempt has died and the next one begins.
    ComingBack {
        ended: &'a AttemptEnd,
        next: &'a NextAttempt,
        /// The next one's number, and of how many where that is known.
        number: u32,
        of: Option<u32>,
    },
    /// The last attempt died of memory, and there is nothing further to try.
    LadderAtItsEnd {
        ended: &'a AttemptEnd,
    },
}

/// Who makes sentences of it. The supervisor prints nothing by itself.
pub trait Audience {
    /// A line for a notice, without its end; `None` to say nothing.
    fn line(&mut self, notice: &Notice<'_>) -> Option<String>;
    /// The text of the status line.
    fn status(&mut self, sample: &Sample, state: &WatchState) -> String;
    /// Prints a line where the supervisor does not stand between the training and standard error.
    fn print(&mut self, line: &str);

    /// Prints a notice while nothing runs.
    fn print_notice(&mut self, notice: &Notice<'_>) {
        if let Some(line) = self.line(notice) {
            self.print(&line);
        }
    }
}

/// How a run ended: as its last attempt.
#[derive(Clone, Debug)]
pub struct RunEnd {
    pub outcome: Outcome,
    pub peaks: Peaks,
    pub last: Option<Sample>,
    pub verdict: Verdict,
    pub run: Option<StoredRun>,
    /// The training's own, or 128 and the signal.
    pub exit_code: u8,
    /// All of them, oldest first.
    pub attempts: Vec<AttemptEnd>,
}

/// The training could not be started.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("`{program}` cannot be started")]
    NotStarted {
        program: String,
        #[source]
        source: io::Error,
    },
}

/// Runs a command, watches it, and says how it ended.
pub fn run(settings: &RunSettings, audience: &mut dyn Audience) -> Result<RunEnd, RunError> {
    run_all(settings, audience, None)
}

/// The same with a ladder: where an attempt dies and the ladder has a next one, it is started, in the same run.
///
/// Everything of an attempt is gone before the next one starts, all ranks of a launcher too. What the user ends stays
/// ended. Whatever fails between two attempts, the exit code is that of the last one.
pub fn run_attempts(
    settings: &RunSettings,
    audience: &mut dyn Audience,
    ladder: &mut dyn Ladder,
) -> Result<RunEnd, RunError> {
    run_all(settings, audience, Some(ladder))
}

/// What all attempts of a run have in common.
pub(crate) struct Run<'a> {
    pub(crate) settings: &'a RunSettings,
    pub(crate) audience: &'a mut dyn Audience,
    pub(crate) recorder: Recorder,
    pub(crate) stored: Option<StoredRun>,
    pub(crate) id: String,
    pub(crate) events: Receiver<Arrived>,
    /// Gaps that were told: the next attempt has most of them too.
    pub(crate) told: Vec<String>,
}

fn run_all(
    settings: &RunSettings,
    audience: &mut dyn Audience,
    mut ladder: Option<&mut dyn Ladder>,
) -> Result<RunEnd, RunError> {
    signals::survive_file_size_limit();
    let as_given = || NextAttempt {
        command: settings.command.clone(),
        ..NextAttempt::default()
    };
    // With a ladder not before the checkpoint is chosen, nor without it: to start over may overwrite what is there.
    if ladder.is_none() {
        last_resort::arm(&settings.command, &[]);
    }
    let first = step(StartStep::FirstCommand, || {
        Ok(match &mut ladder {
            Some(ladder) => ladder.first(),
            None => as_given(),
        })
    });
    let first = match first {
        Ok(first) => first,
        Err(error) if ladder.is_some() => return Err(not_started(&as_given(), error)),
        Err(_) => as_given(),
    };
    if ladder.is_some() {
        last_resort::arm(&first.command, &first.variables);
    }
    let mut opened = Opened::default();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        supervise(settings, audience, ladder, &first, &mut opened)
    }));
    let reason = match ran {
        Ok(Ok(end)) => return Ok(end),
        Ok(Err(NotRun::Command(source))) => return Err(not_started(&first, source)),
        Ok(Err(NotRun::Brimful(error))) => error.to_string(),
        Err(payload) => {
            let message = panic_message(payload.as_ref());
            if !last_resort::is_armed() {
                audience.print_notice(&Notice::Gap(&format!(
                    "a bug in brimful ended the watch; the training goes on: {message}"
                )));
                return Ok(wait_without_watch(opened.stored));
            }
            format!("a bug in brimful: {message}")
        }
    };
    // A record that says nothing would be taken for a run that was cut off.
    if let Some(run) = opened.stored {
        let _ = std::fs::remove_dir_all(run.folder);
    }
    audience.print_notice(&Notice::Unsupervised(&reason));
    let source = last_resort::become_command(&first.command, &first.variables);
    Err(not_started(&first, source))
}

/// What is left of a supervisor that has failed.
#[derive(Default)]
struct Opened {
    stored: Option<StoredRun>,
}

/// Why there is nothing to supervise.
pub(crate) enum NotRun {
    Command(io::Error),
    Brimful(io::Error),
}

fn not_started(first: &NextAttempt, source: io::Error) -> RunError {
    RunError::NotStarted {
        program: words(&first.command).into_iter().next().unwrap_or_default(),
        source,
    }
}

fn supervise(
    settings: &RunSettings,
    audience: &mut dyn Audience,
    ladder: Option<&mut dyn Ladder>,
    first: &NextAttempt,
    opened: &mut Opened,
) -> Result<RunEnd, NotRun> {
    let mut gaps: Vec<String> = Vec::new();
    let held_off = step(StartStep::TerminalStops, || {
        terminal::hold_off_terminal_stops();
        Ok(())
    });
    if held_off.is_err() {
        terminal::hold_off_terminal_stops();
    }
    let place = step(StartStep::WorkingDirectory, || {
        Ok(place_of(&std::env::current_dir()?))
    });
    let mut stored = open_record(settings, &mut gaps);
    opened.stored.clone_from(&stored);
    let mut recorder = Recorder::none();
    if let Some(run) = &stored {
        last_resort::record_is(&run.record_path());
        match step(StartStep::Record, || Ok(Recorder::create(&run.folder))) {
            Ok(created) => recorder = created,
            Err(error) => {
                gaps.push(format!("no run record: {error}"));
                let _ = std::fs::remove_dir_all(&run.folder);
                stored = None;
            }
        }
    }
    let id = stored
        .as_ref()
        .map_or_else(|| std::process::id().to_string(), |run| run.id.clone());
    let (events_in, events) = mpsc::channel();
    let mut run = Run {
        settings,
        audience,
        recorder,
        stored,
        id,
        events,
        told: Vec::new(),
    };
    // Where the place is not known, no earlier run can be told to be of it.
    run.open(&place.unwrap_or_default(), &mut gaps);
    let adopted = step(StartStep::Subreaper, || {
        Ok(rustix::process::set_child_subreaper(Some(
            rustix::process::getpid(),
        ))?)
    });
    if let Err(error) = adopted {
        gaps.push(format!(
            "processes that the training abandons are not seen: {error}"
        ));
    }
    // Without it no signal would reach a training in a process group of its own.
    step(StartStep::Signals, || signals::listen(events_in)).map_err(NotRun::Brimful)?;
    run.attempts(ladder, first.clone(), gaps)
}

/// Waits for a training that brimful has started and lost: the keeper has its status.
fn wait_without_watch(stored: Option<StoredRun>) -> RunEnd {
    let mut own = None;
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            // Without a keeper it is a child of brimful.
            Ok(Some((pid, status))) if Some(pid) == last_resort::running() => {
                let code = status.exit_status().map(Ended::Exited);
                own = code.or(status.terminating_signal().map(Ended::Signaled));
            }
            Err(Errno::CHILD) => break,
            _ => {}
        }
    }
    let kept = stored
        .as_ref()
        .and_then(|run| exit_status::read(&run.folder)?.ended)
        .map(|(ended, _)| ended);
    let ended = own.or(kept).unwrap_or(Ended::Unknown);
    RunEnd {
        outcome: ended.into(),
        peaks: Peaks::default(),
        last: None,
        verdict: Verdict::cannot_tell(),
        run: stored,
        exit_code: ended.exit_code(),
        attempts: Vec::new(),
    }
}

fn open_record(settings: &RunSettings, gaps: &mut Vec<String>) -> Option<StoredRun> {
    let Some(state) = &settings.state else {
        gaps.push(
            "no run record: neither HOME nor XDG_STATE_HOME is set; name a folder with --state-dir"
                .into(),
        );
        return None;
    };
    match step(StartStep::StateDirectory, || state.new_run(unix_ms())) {
        Ok(run) => Some(run),
        Err(error) => {
            gaps.push(format!(
                "no run record: the state directory {} cannot be used: {error} (choose another one with --state-dir \
                 or BRIMFUL_STATE_DIR)",
                state.folder.display()
            ));
            None
        }
    }
}

pub(crate) fn words(command: &[OsString]) -> Vec<String> {
    command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Bytes of a command that are recorded. Some name every file of a dataset.
const MAX_RECORDED_COMMAND: usize = 128 << 10;

/// A command as it is recorded: without its secrets, and not longer than a line may be.
pub(crate) fn recorded(command: &[OsString]) -> Vec<String> {
    let mut recorded = brimful::secrets::mask_command(&words(command));
    let mut left = MAX_RECORDED_COMMAND;
    let n_fit = recorded
        .iter()
        .take_while(|word| {
            let fits = word.len() < left;
            left = left.saturating_sub(word.len() + 1);
            fits
        })
        .count();
    let n_more = recorded.len() - n_fit;
    recorded.truncate(n_fit);
    if n_more > 0 {
        recorded.push(format!("... ({n_more} more)"));
    }
    recorded
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
