//! `brimful run`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use brimful::plan::{Answer, Room, wanted};
use brimful::record::{EndLine, Outcome};
use brimful::watch::{OnPressure, Sample, WatchRules, WatchState};
use brimful_rehearse::{ConfigFiles, NO_CARD};
use brimful_report::text;
use brimful_supervise::checkpoints::{Checkpoints, Refusal, Selector, SelectorOptions};
use brimful_supervise::{
    AttemptEnd, Audience, NextAttempt, Notice, RunEnd, RunError, RunSettings, StartStep, StateDir,
    job_key, step,
};

use crate::args::{OnPressureChoice, RunArguments, StateArguments};
use crate::commands::ladder::{Rungs, age_ms};
use crate::commands::plan::{context, current_folder};
use crate::commands::planning::{self, Search};
use crate::commands::termination;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::{self, Output};

/// Records of runs that are kept where nobody says otherwise: some months of work, below 4 GB in all.
const KEPT_RUNS: usize = 200;

pub(crate) fn run(arguments: &RunArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let mut settings = RunSettings {
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
    let mut gave_up = None;
    let ended = if arguments.command.is_empty() {
        let mut rungs = rungs(arguments, settings.state.as_ref(), output)?;
        settings.command = rungs.prepare()?;
        let ended = brimful_supervise::run_attempts(&settings, &mut speaker, &mut rungs);
        gave_up = rungs.gave_up.take();
        ended
    } else {
        brimful_supervise::run(&settings, &mut speaker)
    };
    let end = match ended {
        Ok(end) => end,
        Err(RunError::NotStarted { program, source }) => {
            let status = not_started(&source);
            output::complain(&CommandError::NotStarted { program, source });
            return Ok(status);
        }
    };
    // The training has ended: whatever fails from here on, its exit code is passed on.
    let said = catch_unwind(AssertUnwindSafe(|| {
        last_word(&end, arguments.quiet, output);
        if let Some(why) = gave_up {
            output.talk(&format!("brimful: it does not come back: {why}\n"));
        }
        prune(settings.state.as_ref());
    }));
    if let Err(payload) = said {
        output::confess(&output::panic_message(payload.as_ref()));
    }
    Ok(ExitStatus::Passed(end.exit_code))
}

/// The ladder of the job in this folder.
fn rungs(
    arguments: &RunArguments,
    state: Option<&StateDir>,
    output: &Output,
) -> Result<Rungs, CommandError> {
    let found = planning::find_job(&arguments.job, &arguments.overrides)?;
    let config = ConfigFiles::open(&found.job)?;
    // Before anything is rehearsed: what a rehearsal might write is no choice.
    let mut checkpoints = Selector::new(
        &current_folder(),
        &found.job.checkpoints,
        SelectorOptions {
            resume: arguments.resume,
            force: arguments.force,
        },
    );
    usable(checkpoints.first())?;
    let machine = planning::machine(None, arguments.gpu.as_deref(), None)?;
    let on_processors = arguments.gpu.as_deref() == Some(NO_CARD);
    let (room, card) = Room::for_job(&machine, on_processors);
    let key = job_key(&current_folder(), &found.job.command);
    if arguments.forget
        && let Some(state) = state
    {
        state.forget(&key);
    }
    let learnt = state.map_or_else(Vec::new, |state| state.history(&key));
    let search = Search {
        room,
        here: true,
        card,
        learnt,
    };
    let planned = if arguments.as_wanted {
        None
    } else {
        let planned = step(StartStep::Plan, || {
            let rehearse = &arguments.rehearse;
            Ok(planning::search(
                &found.job, &search, rehearse, state, output,
            ))
        });
        match planned {
            Ok(Err(error)) if !error.is_ours() => return Err(error),
            Ok(Ok(planned)) => Some(planned),
            Ok(Err(error)) => without_plan(&error, output),
            Err(error) => without_plan(&error, output),
        }
    };
    let (first, shapes) = if let Some(planned) = planned {
        let title = text::machine_title(&machine, card);
        let path = found.path.display().to_string();
        let mode = arguments.job.mode.as_deref();
        let context = context(&path, mode, &title, &found.job, &planned);
        let page = text::plan(&context, &planned.answer, &Output::page());
        let Answer::Plan(plan) = planned.answer else {
            output.talk(&page);
            return Err(CommandError::NothingFits);
        };
        if !arguments.quiet {
            output.talk(&page);
            output.talk("\n");
        }
        (plan.settings, planned.shapes)
    } else {
        (wanted(&found.job, &search.room), Vec::new())
    };
    checkpoints.rehearsals_ended();
    usable(checkpoints.first())?;
    if !arguments.quiet
        && let Some(resumption) = resumption(checkpoints.first())
    {
        output.talk(&text::ladder::resuming(&resumption, &plain_page()));
    }
    Ok(Rungs {
        job: found.job,
        room: search.room,
        shapes,
        learnt: search.learnt,
        first,
        tried: Vec::new(),
        most_attempts: arguments.attempts as usize,
        checkpoints,
        has_resumed: false,
        state: state.cloned(),
        key,
        config,
        prepared: None,
        gave_up: None,
    })
}

/// Where checkpoints are there and none of them can be used, the job is not started: it would write over them from its
/// first step on.
fn usable(found: &Checkpoints) -> Result<(), CommandError> {
    let may_hold_progress = |(_, why): &&(PathBuf, Refusal)| why.may_hold_progress();
    let refused: Vec<(PathBuf, Refusal)> = found
        .refused
        .iter()
        .filter(may_hold_progress)
        .cloned()
        .collect();
    if found.chosen.is_none() && !refused.is_empty() {
        return Err(CommandError::NoUsableCheckpoint { refused });
    }
    Ok(())
}

fn resumption(found: &Checkpoints) -> Option<text::ladder::Resumption<'_>> {
    let chosen = found.chosen.as_ref()?;
    Some(text::ladder::Resumption {
        path: chosen.path.to_string_lossy(),
        step: chosen.step,
        age_ms: age_ms(chosen),
        newer: found
            .newer
            .as_ref()
            .map(|(path, step)| (path.to_string_lossy(), *step)),
    })
}

/// A plan that brimful fails to make does not keep the training from starting: it begins with the settings as wanted.
fn without_plan<T>(error: &dyn std::error::Error, output: &Output) -> Option<T> {
    output.clear_status();
    output.talk(&format!(
        "brimful: planning failed: {error}; starting with the settings as wanted\n"
    ));
    None
}

/// Old records go once the training has ended, so that nobody waits for it.
fn prune(state: Option<&StateDir>) {
    let wanted = std::env::var("BRIMFUL_KEEP_RUNS").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    if let (Some(state), Ok(now)) = (state, now)
        && wanted != "all"
    {
        let keep = wanted.parse().unwrap_or(KEPT_RUNS);
        state.prune(keep, u64::try_from(now.as_millis()).unwrap_or(0));
    }
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
            let n_false_alarms = end.attempts.iter().map(|end| end.n_false_alarms).sum();
            output.talk(&format!(
                "{}\n",
                text::run::last_word(&end.outcome, &end.peaks, limit, n_false_alarms, &page)
            ));
        }
        return;
    }
    termination::write(&end.verdict, end.run.as_ref().map(|run| run.id.as_str()));
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
        // That nothing is watched must not go unnoticed.
        if self.quiet && !matches!(notice, Notice::Unsupervised(_)) {
            return None;
        }
        Some(match notice {
            Notice::CutOff {
                run,
                record,
                verdict,
            } => match record.last_attempt().and_then(|last| last.end.as_ref()) {
                Some(EndLine {
                    outcome: Outcome::NotStarted { error },
                    ..
                }) => format!(
                    "brimful: the last run here was cut off: {error} (brimful explain {})",
                    run.id
                ),
                // The keeper saw the end.
                Some(end) => format!(
                    "brimful: the last run here was cut off: brimful was killed; the training continued and {} (brimful explain {})",
                    text::run::outcome(&end.outcome),
                    run.id
                ),
                None => format!(
                    "brimful: the last run here was cut off: {} (brimful explain {})",
                    verdict.summary, run.id
                ),
            },
            Notice::StillRunning { run, pid } => format!(
                "brimful: the training of the last run here still runs, as process {pid}; brimful was killed (run {})",
                run.id
            ),
            Notice::Unsupervised(reason) => format!("brimful: running unsupervised: {reason}"),
            Notice::Gap(message) => text::run::gap(message),
            Notice::Alarm(alarm) => text::run::alarm(alarm),
            Notice::Action(action) => text::run::action(action),
            Notice::ComingBack {
                ended, next, of, ..
            } => text::ladder::coming_back(&comeback(ended, next, *of), &plain_page()),
            // The last word says why.
            Notice::LadderAtItsEnd { .. } => return None,
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

/// `say` takes out color.
fn plain_page() -> text::Page {
    text::Page {
        color: false,
        ..Output::page()
    }
}

fn comeback<'a>(
    ended: &'a AttemptEnd,
    next: &'a NextAttempt,
    of: Option<u32>,
) -> text::ladder::Comeback<'a> {
    text::ladder::Comeback {
        ended: ended.number,
        of,
        verdict: &ended.verdict,
        why: &next.why,
        changed: &next.changed,
        settings: next.settings.as_ref(),
        effective_batch: next.effective_batch,
        resumed_from: next.resumed_from.as_deref().map(Path::to_string_lossy),
        checkpoint_step: next.checkpoint_step,
        checkpoint_age_ms: next.checkpoint_age_ms,
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
