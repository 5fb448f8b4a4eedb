//! `brimful compare`.

use brimful_report::{html, json, text};
use brimful_workflow::{
    CompareRequest, PredictRequest, Progress, RequestedLength, WorkflowError, check_report_path,
};

use crate::args::CompareArguments;
use crate::commands::report;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::interruption::Interruption;
use crate::output::Output;
use crate::requests;

/// What most people can rent by the hour.
const USUAL_GPUS: [&str; 5] = ["t4", "l4", "a10g", "a100-40gb", "h100"];

pub(crate) fn compare(
    arguments: &CompareArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let gpus = if arguments.gpu.is_empty() && arguments.machine.is_empty() {
        USUAL_GPUS.map(str::to_owned).to_vec()
    } else {
        arguments.gpu.clone()
    };
    let request = CompareRequest {
        predict: PredictRequest {
            command: arguments.command.clone(),
            shown_command: None,
            gpu: None,
            with: Vec::new(),
            alloc_conf: None,
            output: None,
            rehearsal: requests::rehearsal(&arguments.rehearsal),
        },
        gpus,
        machines: arguments.machine.clone(),
        prices: arguments.price.clone(),
        length: match (arguments.epochs, arguments.total_steps) {
            (_, Some(steps)) => RequestedLength::Steps(steps),
            (Some(epochs), None) => RequestedLength::Epochs(epochs),
            (None, None) => RequestedLength::OneEpoch,
        },
    };
    if let Some(path) = &arguments.report {
        check_report_path(path, false)?;
    }
    output.status("rehearsing");
    let interruption = Interruption::watch();
    let compared = brimful_workflow::compare(request, |progress| {
        if let Progress::Line(line) = progress {
            output.status(&format!("rehearsing: {line}"));
        }
        interruption.check()
    });
    output.clear_status();
    if let Some(progress) = compared.as_ref().err().and_then(WorkflowError::interrupted) {
        output.print_to_stderr(&format!("interrupted {progress}\n"));
    }
    interruption.obey();
    let document = compared?;
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
