//! `brimful run`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use brimful::env_vars::BRIMFUL_RECORDS;
use brimful::record::{EndLine, Outcome};
use brimful::watch::{OnPressure, Sample, WatchRules, WatchState};
use brimful_report::text;
use brimful_supervise::checkpoints::Checkpoints;
use brimful_supervise::{
    AttemptEnd, Audience, NextAttempt, Notice, RunEnd, RunError, RunSettings, StateDir, StoredRun,
};
use brimful_workflow::{
    JobLadder, MachineRequest, Progress, RunRequest, WorkflowError, age_ms, command_digest,
    prepare, prune_records, remember_gpu, report_beside_record,
};

use crate::args::{OnPressureChoice, RunArguments};
use crate::commands::fleet::{self, OtlpSender};
use crate::commands::plan::{PlanningDisplay, page};
use crate::commands::termination;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::interruption::Interruption;
use crate::output::{self, Output};
use crate::requests;

pub(crate) fn run(arguments: &RunArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let mut settings = settings(arguments);
    let mut printer = NoticePrinter {
        quiet: arguments.quiet,
    };
    if let Some(parent) = arguments.stop_with_parent {
        brimful_supervise::stop_with_parent(parent);
    }
    let mut gave_up = None;
    let mut sender = None;
    let ended = if arguments.command.is_empty() {
        let mut ladder = ladder(arguments, settings.state.clone(), output)?;
        settings.command = ladder.prepare()?;
        settings.job = ladder.job_digest();
        begin(arguments, &settings, &mut sender);
        let ended = brimful_supervise::run_attempts(&settings, &mut printer, &mut ladder);
        gave_up = ladder.gave_up().map(str::to_owned);
        ended
    } else {
        settings.job = command_digest(&settings.command);
        begin(arguments, &settings, &mut sender);
        brimful_supervise::run(&settings, &mut printer)
    };
    let end = match ended {
        Ok(end) => end,
        Err(RunError::NotStarted { program, source }) => {
            let status = not_started(&source);
            output::print_error(&CommandError::NotStarted { program, source });
            return Ok(status);
        }
    };
    // The command has ended: whatever fails from here on, brimful ends as it did.
    let said = catch_unwind(AssertUnwindSafe(|| {
        let died = has_died(&end);
        if !arguments.no_summary {
            print_summary(&end, arguments.quiet, output);
        }
        if let Some(why) = gave_up {
            output.print_to_stderr(&format!("brimful: not restarting: {why}\n"));
        }
        if let Some(run) = end.run.as_ref().filter(|_| died) {
            write_report(run, arguments.no_summary, output);
        }
        if let Some(sender) = sender {
            sender.finish();
        }
        if let (Some(destination), Some(run)) = (&settings.records, &end.run) {
            fleet::write_record(destination, settings.state.as_ref(), &run.id);
        }
        if let Some(run) = &end.run {
            remember_gpu(settings.state.as_ref(), run);
        }
        prune_records(settings.state.as_ref());
    }));
    if let Err(payload) = said {
        output::print_internal_error(&output::panic_message(payload.as_ref()));
    }
    let signal = end.signal.and_then(|signal| u8::try_from(signal).ok());
    Ok(signal.map_or(ExitStatus::Passed(end.exit_code), ExitStatus::Signaled))
}

/// What is done before the first attempt. A failure does not keep it from starting.
fn begin(arguments: &RunArguments, settings: &RunSettings, sender: &mut Option<OtlpSender>) {
    let begun = catch_unwind(AssertUnwindSafe(|| {
        if let Some(destination) = &settings.records {
            fleet::check_records(destination, settings.state.as_ref());
        }
        let url = arguments.otlp.as_ref()?;
        OtlpSender::start(url.as_deref(), settings.state.as_ref())
    }));
    match begun {
        Ok(started) => *sender = started,
        Err(payload) => {
            output::print_internal_error(&output::panic_message(payload.as_ref()));
        }
    }
}

/// Where records go, with a path that holds wherever they are looked for.
fn records(arguments: &RunArguments) -> Option<String> {
    let named = arguments.records.clone().or_else(|| {
        let named = std::env::var(BRIMFUL_RECORDS).ok();
        named.filter(|named| !named.is_empty())
    })?;
    if named.contains("://") {
        return Some(named);
    }
    let path = std::path::absolute(&named).ok()?;
    Some(path.to_str().unwrap_or(&named).to_owned())
}

fn settings(arguments: &RunArguments) -> RunSettings {
    RunSettings {
        command: arguments.command.clone(),
        brimful_version: env!("CARGO_PKG_VERSION").into(),
        job: String::new(),
        records: records(arguments),
        state: requests::state(&arguments.state),
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
        status_line: !arguments.no_status && output::can_show_status_line(),
        keeper: Some(PathBuf::from("/proc/self/exe")),
    }
}

/// Plans the job of this directory, with progress on standard error.
fn ladder(
    arguments: &RunArguments,
    state: Option<StateDir>,
    output: &Output,
) -> Result<JobLadder, CommandError> {
    let request = RunRequest {
        job: requests::job(&arguments.job, &arguments.overrides),
        machine: MachineRequest {
            gpu: arguments.gpu.clone(),
            ..requests::machine()
        },
        state,
        max_attempts: arguments.attempts as usize,
        resume: arguments.resume,
        force: arguments.force,
        as_wanted: arguments.as_wanted,
        forget: arguments.forget,
        fresh: arguments.rehearse.fresh,
        rehearsal: requests::rehearsal(&arguments.rehearse.rehearsal),
    };
    let mut display = PlanningDisplay::new(output);
    // Planning has ended by the time the training starts, which has its own handlers.
    let interruption = Interruption::watch();
    let ladder = prepare(request, |progress| {
        match &progress {
            Progress::Planned(planned) => {
                output.clear_status();
                if !arguments.quiet || !planned.fits() {
                    output.print_to_stderr(&page(planned));
                }
                if !arguments.quiet && planned.fits() {
                    output.print_to_stderr("\n");
                }
            }
            Progress::PlanFailed { error } => {
                output.clear_status();
                output.print_to_stderr(&format!(
                    "brimful: planning failed: {error}; starting with the preferred value of every knob\n"
                ));
            }
            Progress::Resuming(found) if !arguments.quiet => {
                output.clear_status();
                if let Some(resumption) = resumption(found) {
                    output.print_to_stderr(&text::ladder::resuming(&resumption, &plain_page()));
                }
            }
            Progress::Forgotten { .. } | Progress::JobProblem(_) => {}
            progress => display.show(progress),
        }
        interruption.check()
    });
    display.end(ladder.as_ref().err().and_then(WorkflowError::interrupted));
    interruption.obey();
    Ok(ladder?)
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

/// As shells have it: 127 for a command that is not there, 126 for one that cannot be run.
fn not_started(error: &io::Error) -> ExitStatus {
    match error.kind() {
        io::ErrorKind::NotFound => ExitStatus::Passed(127),
        _ => ExitStatus::Passed(126),
    }
}

/// Writes the report beside the record. A report that cannot be written changes nothing about the run.
fn write_report(run: &StoredRun, no_summary: bool, output: &Output) {
    let line = match report_beside_record(run) {
        Ok(_) if no_summary => return,
        Ok(path) => format!("Open {} to see charts of this run\n", path.display()),
        Err(error) => format!("brimful: no report was written: {error}\n"),
    };
    output.print_to_stderr(&line);
}

/// Whether it ended otherwise than it should, or than the user asked for.
fn has_died(end: &RunEnd) -> bool {
    match end.outcome {
        Outcome::Finished | Outcome::StoppedByUser { .. } => end.verdict.cause.is_memory(),
        _ => true,
    }
}

/// Prints how the run ended.
fn print_summary(end: &RunEnd, quiet: bool, output: &Output) {
    let page = Output::page();
    if !has_died(end) {
        if !quiet {
            let limit = end
                .last
                .as_ref()
                .and_then(|sample| Some(sample.host?.limit));
            let n_false_alarms = end.attempts.iter().map(|end| end.n_false_alarms).sum();
            output.print_to_stderr(&format!(
                "{}\n",
                text::run::last_word(&end.outcome, &end.peaks, limit, n_false_alarms, &page)
            ));
        }
        return;
    }
    termination::write(&end.verdict, end.run.as_ref().map(|run| run.id.as_str()));
    let mut words = format!(
        "\nbrimful: the run {}\n\n",
        text::run::outcome(&end.outcome)
    );
    words.push_str(&text::explain(&end.verdict, &page));
    if let Some(run) = &end.run {
        words.push_str("\nRun `brimful explain ");
        words.push_str(&run.id);
        words.push_str("` to see this report again\n");
    }
    output.print_to_stderr(&words);
}

/// Prints the supervisor's notices as lines.
struct NoticePrinter {
    quiet: bool,
}

impl Audience for NoticePrinter {
    fn line(&mut self, notice: &Notice<'_>) -> Option<String> {
        // A run without supervision is reported even if quiet.
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
                    "brimful: the previous run in this directory was interrupted: {error} (run `brimful explain {}`)",
                    run.id
                ),
                // The keeper saw the end.
                Some(end) => format!(
                    "brimful: the previous run in this directory was interrupted: brimful was killed; the command continued and {} (run `brimful explain {}`)",
                    text::run::outcome(&end.outcome),
                    run.id
                ),
                None => format!(
                    "brimful: the previous run in this directory was interrupted: {} (run `brimful explain {}`)",
                    verdict.summary, run.id
                ),
            },
            Notice::StillRunning { run, pid } => format!(
                "brimful: the command of run {} is still running as process {pid}, but brimful was killed",
                run.id
            ),
            Notice::Unsupervised(reason) => format!("brimful: running unsupervised: {reason}"),
            Notice::Gap(message) => text::run::gap(message),
            Notice::Alarm(alarm) => text::run::alarm(alarm),
            Notice::Action(action) => text::run::action(action),
            Notice::ComingBack {
                ended, next, of, ..
            } => text::ladder::coming_back(&comeback(ended, next, *of), &plain_page()),
            // The summary says why.
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
        output::print_line(line);
    }
}

/// `print_line` removes color.
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
