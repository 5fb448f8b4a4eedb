//! `brimful replay`.

use brimful_report::{html, json, text};
use brimful_workflow::{ReplayRequest, check_report_path};

use crate::args::ReplayArguments;
use crate::commands::report;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;

pub(crate) fn replay(
    arguments: &ReplayArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    if let Some(path) = &arguments.report {
        check_report_path(path, false)?;
    }
    let document = brimful_workflow::replay(&ReplayRequest {
        file: arguments.file.clone(),
        gpu: arguments.gpu.clone(),
        capacity: arguments.capacity.clone(),
        alloc_conf: arguments.alloc_conf.clone(),
        device: arguments.device,
        torch: arguments.torch.clone(),
        with_layout: arguments.report.is_some(),
    })?;
    if let Some(path) = &arguments.report {
        report::write(path, html::report::replay_report(&document), output)?;
    }
    let page = if arguments.json {
        json::to_text(&document)?
    } else {
        text::replay(&document, &Output::page())
    };
    output.print(&page)?;
    let fits = document.results.iter().any(|result| !result.oom);
    Ok(ExitStatus::of_fit(fits))
}
