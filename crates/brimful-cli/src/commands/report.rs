//! `brimful report`, and `--report` of other commands.

use std::path::Path;
use std::process::{Command, Stdio};

use brimful_workflow::{ReportError, check_report_path, write_report};

use crate::args::ReportArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::output::Output;
use crate::requests;

/// Opens a file with the user's own program for it.
const OPENER: &str = "xdg-open";

pub(crate) fn report(
    arguments: &ReportArguments,
    output: &Output,
) -> Result<ExitStatus, CommandError> {
    let path = &arguments.output;
    let is_stdout = path.as_os_str() == "-";
    if !is_stdout {
        check_report_path(path, arguments.force)?;
    }
    let state = requests::state(&arguments.state);
    let page = brimful_workflow::report(&arguments.what, state.as_ref())?;
    if is_stdout {
        output.print(&page)?;
        return Ok(ExitStatus::Success);
    }
    write_report(path, &page, arguments.force)?;
    output.print(&format!("wrote {}\n", path.display()))?;
    if arguments.open {
        open(path, output);
    }
    Ok(ExitStatus::Success)
}

/// Writes the page that `--report FILE` asks for.
pub(crate) fn write(
    path: &Path,
    page: Result<String, impl Into<ReportError>>,
    output: &Output,
) -> Result<(), CommandError> {
    write_report(path, &page.map_err(Into::<ReportError>::into)?, false)?;
    output.print_to_stderr(&format!("brimful: wrote the report {}\n", path.display()));
    Ok(())
}

/// A report that cannot be shown is still there.
fn open(path: &Path, output: &Output) {
    let started = Command::new(OPENER)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if started.is_err() {
        output.notice(
            &format!("cannot open a browser: {OPENER} was not found"),
            &format!("open {} yourself", path.display()),
        );
    }
}
