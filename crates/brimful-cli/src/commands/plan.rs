//! `brimful plan`.

use std::path::Path;

use brimful::job::ConfigOverrides;
use brimful::job::forms::Form;
use brimful_report::text::{RequestedJob, Scheduler};
use brimful_report::{html, json, text};
use brimful_workflow::{
    MachineRequest, PlanRequest, PlannedJob, Progress, WorkflowError, check_report_path,
};

use crate::args::{FormatChoice, PlanArguments};
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
        shm: arguments.shm,
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
        Some(format) if planned.fits() => match form(format) {
            Asked::Settings(form) => print_settings(form, &planned, output)?,
            Asked::Request(scheduler) => print_request(scheduler, &planned, arguments, output)?,
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
    let mut command = vec!["brimful".to_owned(), "run".to_owned()];
    if let Some(path) = &arguments.job.job {
        command.extend(["--job".to_owned(), path.display().to_string()]);
    }
    if let Some(mode) = &arguments.job.mode {
        command.extend(["--mode".to_owned(), mode.clone()]);
    }
    for value in &arguments.overrides {
        command.extend(["--set".to_owned(), value.clone()]);
    }
    let job = RequestedJob {
        name: script_name(&planned.job.command),
        machine: planned.context.machine.clone(),
        command,
    };
    output.print(&text::request(scheduler, &request, &job))
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

/// What a format is about.
enum Asked {
    Settings(Form),
    Request(Scheduler),
}

fn form(format: FormatChoice) -> Asked {
    match format {
        FormatChoice::Args => Asked::Settings(Form::Args),
        FormatChoice::Env => Asked::Settings(Form::Env),
        FormatChoice::Hf => Asked::Settings(Form::Hf),
        FormatChoice::Lightning => Asked::Settings(Form::Lightning),
        FormatChoice::Json => Asked::Settings(Form::Json),
        FormatChoice::Toml => Asked::Settings(Form::Toml),
        FormatChoice::Slurm => Asked::Request(Scheduler::Slurm),
        FormatChoice::K8s => Asked::Request(Scheduler::Kubernetes),
        FormatChoice::Ray => Asked::Request(Scheduler::Ray),
        FormatChoice::Skypilot => Asked::Request(Scheduler::SkyPilot),
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
