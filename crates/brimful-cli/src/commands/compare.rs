//! `brimful compare`.

use brimful_probe::current_environment;
use brimful_report::json::CompareDocument;
use brimful_report::{html, json, text};
use brimful_workflow::{
    CompareOptions, ComparePlansRequest, CompareRequest, PlanRequest, PredictRequest, Progress,
    RequestedLength, WorkflowError, check_report_path, state_dir,
};

use crate::args::{CompareArguments, StateArguments};
use crate::commands::plan::PlanningDisplay;
use crate::commands::report;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::interruption::Interruption;
use crate::output::Output;
use crate::requests;

pub(crate) fn compare(
    arguments: &CompareArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let options = options(arguments);
    if let Some(path) = &arguments.report {
        check_report_path(path, false)?;
    }
    let document = if arguments.command.is_empty() {
        with_plans(arguments, options, output)?
    } else {
        as_it_is(arguments, options, output)?
    };
    if let Some(path) = &arguments.report {
        report::write(path, html::report::compare_report(&document), output)?;
    }
    let page = if arguments.json {
        json::to_text(&document)?
    } else {
        text::compare(&document, &Output::page())
    };
    output.print(&page)?;
    let fits = document.candidates.iter().any(|found| found.fits);
    Ok(ExitStatus::of_fit(fits))
}

fn options(arguments: &CompareArguments) -> CompareOptions {
    CompareOptions {
        gpus: arguments.gpu.clone(),
        machines: arguments.machine.clone(),
        prices: arguments.price.clone(),
        length: RequestedLength::of(arguments.epochs, arguments.total_steps),
    }
}

/// The command with its own settings.
fn as_it_is(
    arguments: &CompareArguments,
    options: CompareOptions,
    output: &Output,
) -> Result<CompareDocument, CommandError> {
    let request = CompareRequest {
        predict: PredictRequest {
            command: arguments.command.clone(),
            shown_command: None,
            gpu: None,
            environment: current_environment(),
            with: Vec::new(),
            alloc_conf: None,
            output: None,
            state: state_dir(None),
            rehearsal: requests::rehearsal(&arguments.rehearsal),
        },
        options,
    };
    output.status("rehearsing");
    let interruption = Interruption::watch();
    let compared = brimful_workflow::compare(request, |progress| {
        match progress {
            Progress::Line(line) => output.status(&format!("rehearsing: {line}")),
            Progress::Notice(note) => output.note(&note),
            _ => {}
        }
        interruption.check()
    });
    output.clear_status();
    if let Some(progress) = compared.as_ref().err().and_then(WorkflowError::interrupted) {
        output.print_to_stderr(&format!("interrupted {progress}\n"));
    }
    interruption.obey();
    Ok(compared?)
}

/// The job with the settings that are best for each candidate.
fn with_plans(
    arguments: &CompareArguments,
    options: CompareOptions,
    output: &Output,
) -> Result<CompareDocument, CommandError> {
    let request = ComparePlansRequest {
        plan: PlanRequest {
            job: requests::job(&arguments.job, &[]),
            machine: requests::machine(),
            gpu_memory: None,
            shm: None,
            state: requests::state(&StateArguments::default()),
            forget: false,
            fresh: false,
            rehearsal: requests::rehearsal(&arguments.rehearsal),
        },
        options,
    };
    let mut display = PlanningDisplay::new(output);
    let interruption = Interruption::watch();
    let compared = brimful_workflow::compare_plans(&request, |progress| {
        display.show(&progress);
        interruption.check()
    });
    display.end(compared.as_ref().err().and_then(WorkflowError::interrupted));
    interruption.obey();
    Ok(compared?)
}
