//! `brimful runs`.

use std::ffi::OsString;

use brimful_report::{json, text};

use crate::args::RunsArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;
use crate::package::hand_over;
use crate::requests;

pub(crate) fn runs(arguments: &RunsArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    if let Some(at) = &arguments.at {
        return Err(survey(at.clone(), arguments));
    }
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

/// Returns only if Python cannot be started.
fn survey(at: OsString, arguments: &RunsArguments) -> CommandError {
    let mut words = vec![at];
    words.extend(["--width".into(), Output::page().width.to_string().into()]);
    if let Some(report) = &arguments.report {
        words.extend(["--report".into(), report.clone().into()]);
    }
    let flags = [("--force", arguments.force), ("--json", arguments.json)];
    words.extend(flags.iter().filter(|flag| flag.1).map(|flag| flag.0.into()));
    hand_over(None, "_fleet_command", words)
}
