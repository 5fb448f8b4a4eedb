//! `brimful runs`.

use brimful_report::{json, text};

use crate::args::RunsArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;
use crate::requests;

pub(crate) fn runs(arguments: &RunsArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let state = requests::state(&arguments.state);
    let document = brimful_workflow::runs(state.as_ref(), arguments.last)?;
    let page = if arguments.json {
        json::to_text(&document)?
    } else {
        text::runs(&document.state_dir, &document.runs, &Output::page())
    };
    output.print(&page)?;
    Ok(ExitStatus::Success)
}
