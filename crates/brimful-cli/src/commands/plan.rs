//! `brimful plan`.

use std::path::{Component, Path};

use brimful::job::ConfigOverrides;
use brimful::job::forms::Form;
use brimful::units::Bytes;
use brimful_report::text::{RequestedJob, Scheduler};
use brimful_report::{html, json, text};
use brimful_workflow::{
    MachineRequest, PlanRequest, PlannedJob, Progress, WorkflowError, check_report_path,
};

use crate::args::{DEFAULT_STEPS, DEFAULT_TIME_LIMIT, FormatChoice, NetworkChoice, PlanArguments};
use crate::commands::probe::alternatives;
use crate::commands::report;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::interruption::Interruption;
use crate::output::Output;
use crate::requests;

pub(crate) fn plan(arguments: &PlanArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let is_page = arguments.format.is_none() && !arguments.json && arguments.report.is_none();
    if !is_page {
        return plan_for(arguments, arguments.gpu.clone(), arguments.forget, output);
    }
    // One page for each alternative.
    let mut best = ExitStatus::of_fit(false);
    for (at, gpu) in alternatives(arguments.gpu.as_deref())?
        .into_iter()
        .enumerate()
    {
        if at > 0 {
            output.print("\n")?;
        }
        let found = plan_for(arguments, gpu, arguments.forget && at == 0, output)?;
        if found == ExitStatus::Success {
            best = found;
        }
    }
    Ok(best)
}

fn plan_for(
    arguments: &PlanArguments,
    gpu: Option<String>,
    forget: bool,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let request = PlanRequest {
        job: requests::job(&arguments.job, &arguments.overrides),
        machine: MachineRequest {
            as_machine: arguments.as_machine.clone(),
            gpu,
            memory: arguments.memory,
            ..requests::machine()
        },
        gpu_memory: arguments.gpu_memory,
        shm: arguments.shm.or(requested_shm(arguments.format)),
        state: requests::state(&arguments.state),
        forget,
        fresh: arguments.rehearse.fresh,
        rehearsal: requests::rehearsal(&arguments.rehearse.rehearsal),
    };
    if let Some(path) = &arguments.report {
        check_report_path(path, false)?;
    }
    let mut display = PlanningDisplay::new(output);
    let interruption = Interruption::watch();
    let planned = brimful_workflow::plan(request, |progress| {
        display.show(&progress);
        interruption.check()
    });
    display.end(planned.as_ref().err().and_then(WorkflowError::interrupted));
    interruption.obey();
    let planned = planned?;
    if let Some(path) = &arguments.report {
        let page = html::report::plan_report(&planned.document());
        report::write(path, page, output)?;
    }
    match arguments.format {
        Some(format) if planned.fits() => match printed(format) {
            Printed::Settings(form) => print_settings(form, &planned, output)?,
            Printed::Request(scheduler) => print_request(scheduler, &planned, arguments, output)?,
        },
        // Whoever asks for settings alone reads them with a program, so the reason goes to standard error.
        Some(_) => output.print_to_stderr(&page(&planned)),
        None if arguments.json => output.print(&json::to_text(&planned.document())?)?,
        None => output.print(&page(&planned))?,
    }
    Ok(ExitStatus::of_fit(planned.fits()))
}

pub(crate) fn page(planned: &PlannedJob) -> String {
    text::plan(&planned.context, &planned.answer, &Output::page())
}

/// Prints the file that asks a scheduler for what the plan needs, and starts `brimful run` there.
fn print_request(
    scheduler: Scheduler,
    planned: &PlannedJob,
    arguments: &PlanArguments,
    output: &Output,
) -> Result<(), CommandError> {
    let Some(request) = planned.resource_request() else {
        return Ok(());
    };
    let settings = planned.answer.settings().0.iter();
    let settings: Vec<String> = settings
        .map(|(knob, value)| format!("{knob} {value}"))
        .collect();
    let job = RequestedJob {
        name: script_name(&planned.job.command),
        settings: settings.join(", "),
        command: run_command(arguments),
    };
    let is_elsewhere = |path: &Path| {
        path.is_absolute() || path.components().any(|part| part == Component::ParentDir)
    };
    if scheduler != Scheduler::Slurm && arguments.job.job.as_deref().is_some_and(is_elsewhere) {
        output.notice(
            "the job file is not in this directory, so the node may not have it",
            "run `brimful plan` in the directory of the job file",
        );
    }
    output.print(&text::request(scheduler, &request, &job))
}

/// `brimful run` with the options of the plan.
fn run_command(arguments: &PlanArguments) -> Vec<String> {
    let mut command = vec!["brimful".to_owned(), "run".to_owned()];
    let mut add = |option: &str, value: String| command.extend([option.to_owned(), value]);
    if let Some(path) = &arguments.job.job {
        add("--job", path.display().to_string());
    }
    if let Some(mode) = &arguments.job.mode {
        add("--mode", mode.clone());
    }
    for value in &arguments.overrides {
        add("--set", value.clone());
    }
    if let Some(path) = &arguments.state.state_dir {
        add("--state-dir", path.display().to_string());
    }
    let rehearsal = &arguments.rehearse.rehearsal;
    if rehearsal.steps != DEFAULT_STEPS {
        add("--steps", rehearsal.steps.to_string());
    }
    if rehearsal.time_limit != DEFAULT_TIME_LIMIT {
        add("--time-limit", rehearsal.time_limit.to_string());
    }
    if let Some(scratch) = rehearsal.protection.scratch {
        add("--scratch", scratch.get().to_string());
    }
    if rehearsal.protection.network == NetworkChoice::None {
        add("--network", "none".to_owned());
    }
    if rehearsal.protection.allow_writes {
        command.push("--allow-writes".to_owned());
    }
    command
}

/// The name of the script in a command, without its directory and extension.
fn script_name(command: &[String]) -> String {
    let script = command.iter().map(Path::new).find(|word| {
        word.extension()
            .is_some_and(|extension| extension == "py" || extension == "sh")
    });
    let stem = script.and_then(Path::file_stem);
    stem.map_or_else(
        || "train".to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    )
}

fn print_settings(form: Form, planned: &PlannedJob, output: &Output) -> Result<(), CommandError> {
    if form == Form::Args {
        for file in &planned.context.config {
            output.notice(
                &format!(
                    "the printed command does not include the values for `{}`: {}",
                    file.path,
                    assigned(file)
                ),
                "write them to a copy of the file, or use `brimful run`, which does this for you",
            );
        }
    }
    let settings = planned.answer.settings();
    output.print(&form.write(&planned.job, settings, planned.is_on_gpu))
}

fn assigned(file: &ConfigOverrides) -> String {
    let values = file.entries.iter();
    let values: Vec<String> = values
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    values.join(", ")
}

/// A manifest for Kubernetes requests /dev/shm, so what the planning machine has there is no limit.
fn requested_shm(format: Option<FormatChoice>) -> Option<Bytes> {
    (format == Some(FormatChoice::K8s)).then_some(Bytes(1 << 50))
}

/// What a format prints.
enum Printed {
    Settings(Form),
    Request(Scheduler),
}

fn printed(format: FormatChoice) -> Printed {
    match format {
        FormatChoice::Args => Printed::Settings(Form::Args),
        FormatChoice::Env => Printed::Settings(Form::Env),
        FormatChoice::Hf => Printed::Settings(Form::Hf),
        FormatChoice::Lightning => Printed::Settings(Form::Lightning),
        FormatChoice::Json => Printed::Settings(Form::Json),
        FormatChoice::Toml => Printed::Settings(Form::Toml),
        FormatChoice::Slurm => Printed::Request(Scheduler::Slurm),
        FormatChoice::K8s => Printed::Request(Scheduler::Kubernetes),
        FormatChoice::Ray => Printed::Request(Scheduler::Ray),
        FormatChoice::Skypilot => Printed::Request(Scheduler::SkyPilot),
    }
}

/// Shows the progress of planning on standard error.
pub(crate) struct PlanningDisplay<'a> {
    output: &'a Output,
    /// The current rehearsal.
    label: String,
}

impl<'a> PlanningDisplay<'a> {
    pub(crate) fn new(output: &'a Output) -> PlanningDisplay<'a> {
        output.status("planning");
        PlanningDisplay {
            output,
            label: "a rehearsal".into(),
        }
    }

    pub(crate) fn show(&mut self, progress: &Progress<'_>) {
        let output = self.output;
        match progress {
            Progress::Rehearsal { label } => {
                self.label.clone_from(label);
                output.status(label);
            }
            Progress::Line(line) => output.status(&format!("{}: {line}", self.label)),
            Progress::Notice(note) => output.note(note),
            Progress::Forgotten { n_runs } => output.print_to_stderr(&format!(
                "brimful: ignoring {n_runs} earlier runs of this job\n"
            )),
            Progress::JobProblem(problem) => {
                output.notice(problem, "see docs/reference/job-file.md");
            }
            _ => {}
        }
    }

    pub(crate) fn end(&self, interrupted: Option<impl std::fmt::Display>) {
        self.output.clear_status();
        if let Some(progress) = interrupted {
            self.output
                .print_to_stderr(&format!("interrupted in {} {progress}\n", self.label));
        }
    }
}
