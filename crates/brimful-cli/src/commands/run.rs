//! `brimful run`.

use std::io;
use std::path::PathBuf;

use brimful::record::Outcome;
use brimful::watch::{OnPressure, Sample, WatchRules, WatchState};
use brimful_report::text;
use brimful_supervise::{Audience, Notice, RunEnd, RunError, RunSettings, StateDir};

use crate::args::{OnPressureChoice, RunArguments, StateArguments};
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::{self, Output};

pub(crate) fn run(arguments: &RunArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let settings = RunSettings {
        command: arguments.command.clone(),
        brimful_version: env!("CARGO_PKG_VERSION").into(),
        state: state_dir(&arguments.state),
        rules: WatchRules {
            on_pressure: match arguments.on_pressure {
                OnPressureChoice::Warn => OnPressure::Warn,
                OnPressureChoice::Checkpoint => OnPressure::Checkpoint,
                OnPressureChoice::Stop => OnPressure::Stop,
            },
            grace_ms: arguments.grace.saturating_mul(1000),
            stop_grace_ms: arguments.grace.saturating_mul(1000),
        },
        checkpoint_signal: arguments.signal.number(),
        dry_run: arguments.dry_run,
        hook: !arguments.no_hook,
        trace_allocations: arguments.trace_allocations,
        metrics_file: arguments.metrics_file.clone(),
        status_line: !arguments.no_status && output::status_line_makes_sense(),
        keeper: Some(PathBuf::from("/proc/self/exe")),
    };
    let mut speaker = Speaker {
        quiet: arguments.quiet,
    };
    let end = match brimful_supervise::run(&settings, &mut speaker) {
        Ok(end) => end,
        Err(RunError::NotStarted { program, source }) => {
            let status = not_started(&source);
            output::complain(&CommandError::NotStarted { program, source });
            return Ok(status);
        }
        Err(error @ RunError::Signals(_)) => return Err(error.into()),
    };
    last_word(&end, arguments.quiet, output);
    Ok(ExitStatus::Passed(end.exit_code))
}

/// As shells have it: 127 for a command that is not there, 126 for one that cannot be run.
fn not_started(error: &io::Error) -> ExitStatus {
    match error.kind() {
        io::ErrorKind::NotFound => ExitStatus::Passed(127),
        _ => ExitStatus::Passed(126),
    }
}

fn last_word(end: &RunEnd, quiet: bool, output: &Output) {
    let died = match end.outcome {
        Outcome::Finished | Outcome::StoppedByUser { .. } => end.verdict.cause.is_memory(),
        _ => true,
    };
    let page = Output::page();
    if !died {
        if !quiet {
            let limit = end
                .last
                .as_ref()
                .and_then(|sample| Some(sample.host?.limit));
            output.talk(&format!(
                "{}\n",
                text::run::last_word(&end.outcome, &end.peaks, limit, &page)
            ));
        }
        return;
    }
    let mut words = format!(
        "\nbrimful: the training {}\n\n",
        text::run::outcome(&end.outcome)
    );
    words.push_str(&text::explain(&end.verdict, &page));
    if let Some(run) = &end.run {
        words.push_str("\nSaid again by `brimful explain ");
        words.push_str(&run.id);
        words.push_str("`\n");
    }
    output.talk(&words);
}

/// Makes lines of what the supervisor notices.
struct Speaker {
    quiet: bool,
}

impl Audience for Speaker {
    fn line(&mut self, notice: &Notice<'_>) -> Option<String> {
        if self.quiet {
            return None;
        }
        Some(match notice {
            Notice::CutOff { run, verdict, .. } => format!(
                "brimful: the last run here was cut off: {} (brimful explain {})",
                verdict.summary, run.id
            ),
            Notice::Gap(message) => text::run::gap(message),
            Notice::Alarm(alarm) => text::run::alarm(alarm),
            Notice::Action(action) => text::run::action(action),
        })
    }

    fn status(&mut self, sample: &Sample, state: &WatchState) -> String {
        text::run::status(
            sample,
            state.host_rate(),
            state.time_to_brim_ms(),
            &Output::full_width(),
        )
    }

    fn print(&mut self, line: &str) {
        output::say(line);
    }
}

/// Where runs are kept: the folder that was named, or the one of the convention.
pub(crate) fn state_dir(arguments: &StateArguments) -> Option<StateDir> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    StateDir::choose(
        arguments
            .state_dir
            .clone()
            .or_else(|| variable("BRIMFUL_STATE_DIR")),
        variable("XDG_STATE_HOME"),
        variable("HOME"),
    )
}
