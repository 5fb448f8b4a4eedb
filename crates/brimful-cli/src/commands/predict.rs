//! `brimful predict`.

use brimful_probe::current_environment;
use brimful_report::{html, json, text};
use brimful_workflow::{PredictRequest, Progress, WorkflowError, check_report_path, state_dir};

use crate::args::PredictArguments;
use crate::commands::report;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::interruption::Interruption;
use crate::output::Output;
use crate::requests;

pub(crate) fn predict(
    arguments: &PredictArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let request = PredictRequest {
        command: arguments.command.clone(),
        shown_command: None,
        gpu: arguments.gpu.clone(),
        environment: current_environment(),
        with: arguments
            .with
            .iter()
            .map(|phase| phase.name().to_owned())
            .collect(),
        alloc_conf: arguments.alloc_conf.clone(),
        output: arguments.output.clone(),
        state: state_dir(None),
        rehearsal: requests::rehearsal(&arguments.rehearsal),
    };
    if let Some(path) = &arguments.report {
        check_report_path(path, false)?;
    }
    output.status("rehearsing");
    let interruption = Interruption::watch();
    let predicted = brimful_workflow::predict(request, |progress| {
        match progress {
            Progress::WithoutCuda { torch } => output.notice(
                &format!("torch {torch} is a CPU-only build: the prediction is less accurate"),
                "install the CUDA build of torch for an exact prediction; it needs no GPU and no driver",
            ),
            Progress::Line(line) => output.status(&format!("rehearsing: {line}")),
            Progress::Notice(note) => output.note(&note),
            _ => {}
        }
        interruption.check()
    });
    output.clear_status();
    if let Some(progress) = predicted
        .as_ref()
        .err()
        .and_then(WorkflowError::interrupted)
    {
        output.print_to_stderr(&format!("interrupted {progress}\n"));
    }
    interruption.obey();
    let predicted = predicted?;
    if let Some(path) = &arguments.save_trace {
        brimful_private::write_named(path, &predicted.trace.to_bytes()).map_err(|source| {
            CommandError::Write {
                path: path.clone(),
                source,
            }
        })?;
    }
    if let Some(path) = &arguments.report {
        let page = html::report::predict_report(&predicted.document());
        report::write(path, page, output)?;
    }
    let page = if arguments.json {
        json::to_text(&predicted.document())?
    } else if arguments.brief {
        text::predict_line(&predicted.rehearsed, &predicted.footprints)
    } else {
        text::predict(&predicted.rehearsed, &predicted.footprints, &Output::page())
    };
    output.print(&page)?;
    Ok(ExitStatus::of_fit(predicted.fits()))
}
