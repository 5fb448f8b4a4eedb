//! `brimful runs`.

use brimful_report::{json, text};

use crate::args::RunsArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;
use crate::requests;

pub(crate) fn runs(arguments: &RunsArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let state = requests::state(&arguments.state).ok_or(CommandError::NoStateDir)?;
    let summaries: Vec<json::RunSummary> = state
        .runs()?
        .iter()
        .take(arguments.last.unwrap_or(usize::MAX))
        .filter_map(|run| {
            let record = run.read().ok()?;
            Some(json::RunSummary::of(&record, run.is_running()))
        })
        .collect();
    let folder = state.directory.display().to_string();
    let page = if arguments.json {
        json::to_text(&json::RunsDocument::of(&folder, summaries))?
    } else {
        text::runs(&folder, &summaries, &Output::page())
    };
    output.print(&page)?;
    Ok(ExitStatus::Success)
}
