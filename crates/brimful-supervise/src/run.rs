//! One run: its record, its signals, and what remains where it cannot be supervised.
//!
//! `attempts.rs` makes its attempts one after the other, `start.rs` starts one, `running.rs` watches it, `ending.rs` ends
//! it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use brimful::explain::Verdict;
use brimful::record::Peaks;
use rustix::io::Errno;
use rustix::process::WaitOptions;

use crate::attempts::{self, RunEnd};
use crate::caller::CallersDescriptors;
use crate::clock::unix_ms;
use crate::command::words;
use crate::context::RunContext;
use crate::exit_status::{self, Ended};
use crate::ladder::{Ladder, NextAttempt};
use crate::last_resort;
use crate::launch::NotStarted;
use crate::notice::{Audience, Notice};
use crate::recorder::Recorder;
use crate::settings::RunSettings;
use crate::signals;
use crate::start_step::StartStep;
use crate::state::{StoredRun, place_of};
use crate::steps::{panic_message, step};
use crate::terminal;

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
///
/// It is for a program that does nothing else: what the caller of this process has opened for the command is closed here
/// once the command has it.
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

fn run_all(
    settings: &RunSettings,
    audience: &mut dyn Audience,
    mut ladder: Option<&mut dyn Ladder>,
) -> Result<RunEnd, RunError> {
    signals::survive_file_size_limit();
    // A further attempt would need them too.
    let callers_descriptors = ladder.is_none().then(CallersDescriptors::now);
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
        supervise(
            settings,
            audience,
            ladder,
            &first,
            callers_descriptors,
            &mut opened,
        )
    }));
    let reason = match ran {
        Ok(Ok(end)) => return Ok(end),
        Ok(Err(NotStarted::Command(source))) => return Err(not_started(&first, source)),
        Ok(Err(NotStarted::Brimful(error))) => error.to_string(),
        Err(payload) => {
            let message = panic_message(payload.as_ref());
            if !last_resort::is_armed() {
                audience.print_notice(&Notice::Gap(&format!(
                    "a bug in brimful stopped the monitoring; the training continues: {message}"
                )));
                return Ok(wait_without_watch(opened.stored));
            }
            format!("a bug in brimful: {message}")
        }
    };
    // A record that says nothing would be taken for a run that was cut off.
    if let Some(run) = opened.stored {
        let _ = std::fs::remove_dir_all(run.directory);
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
    callers_descriptors: Option<CallersDescriptors>,
    opened: &mut Opened,
) -> Result<RunEnd, NotStarted> {
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
        match step(StartStep::Record, || Ok(Recorder::create(&run.directory))) {
            Ok(created) => recorder = created,
            Err(error) => {
                gaps.push(format!("no run record: {error}"));
                let _ = std::fs::remove_dir_all(&run.directory);
                stored = None;
            }
        }
    }
    let id = stored
        .as_ref()
        .map_or_else(|| std::process::id().to_string(), |run| run.id.clone());
    let (events_in, events) = mpsc::channel();
    let mut run = RunContext {
        settings,
        audience,
        recorder,
        stored,
        id,
        events,
        callers_descriptors,
        is_interrupted: false,
        reported_gaps: Vec::new(),
    };
    // Where the place is not known, no earlier run can be told to be of it.
    attempts::open(&mut run, &place.unwrap_or_default(), &mut gaps);
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
    step(StartStep::Signals, || signals::listen(events_in)).map_err(NotStarted::Brimful)?;
    attempts::run_ladder(run, ladder, first.clone(), gaps)
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
        .and_then(|run| exit_status::read(&run.directory)?.ended)
        .map(|(ended, _)| ended);
    let ended = own.or(kept).unwrap_or(Ended::Unknown);
    RunEnd {
        outcome: ended.into(),
        peaks: Peaks::default(),
        last: None,
        verdict: Verdict::cannot_tell(),
        run: stored,
        exit_code: ended.exit_code(),
        signal: ended.signal(),
        attempts: Vec::new(),
    }
}

fn open_record(settings: &RunSettings, gaps: &mut Vec<String>) -> Option<StoredRun> {
    let Some(state) = &settings.state else {
        gaps.push(
            "no run record: HOME does not name a directory and XDG_STATE_HOME is not set; name a directory with --state-dir"
                .into(),
        );
        return None;
    };
    match step(StartStep::StateDirectory, || state.new_run(unix_ms())) {
        Ok(run) => Some(run),
        Err(error) => {
            gaps.push(format!(
                "no run record: cannot use the state directory {}: {error} (choose another one with --state-dir \
                 or BRIMFUL_STATE_DIR)",
                state.directory.display()
            ));
            None
        }
    }
}
