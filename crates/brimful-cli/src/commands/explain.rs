//! `brimful explain`.

use brimful_report::{json, text};

use crate::args::ExplainArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;
use crate::requests;

pub(crate) fn explain(
    arguments: &ExplainArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let state = requests::state(&arguments.state);
    let explained = brimful_workflow::explain(arguments.what.as_deref(), state.as_ref())?;
    let page = if arguments.json {
        json::to_text(&explained.document())?
    } else {
        text::explain_attempts(&explained.verdict, &explained.attempts, &Output::page())
    };
    output.print(&page)?;
    Ok(ExitStatus::Success)
}
