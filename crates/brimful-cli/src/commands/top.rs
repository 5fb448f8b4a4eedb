//! `brimful top`.

use std::path::Path;

use brimful_supervise::AttachedRun;
use brimful_workflow::ExplainError;

use crate::args::TopArguments;
use crate::error::CommandError;
use crate::exit::ExitStatus;
use crate::interruption::Interruption;
use crate::output::{self, Output};
use crate::requests;

pub(crate) fn top(arguments: &TopArguments, output: &Output) -> Result<ExitStatus, CommandError> {
    let attached = attach(arguments)?;
    if arguments.once || !output::can_show_screen() {
        let frame = brimful_top::once(&attached, Output::frame_size(), output.look())?;
        output.print(&frame)?;
        return Ok(ExitStatus::Success);
    }
    let interruption = Interruption::watch();
    brimful_top::watch(&attached, output.look(), || interruption.check().is_break())?;
    interruption.obey();
    Ok(ExitStatus::Success)
}

fn attach(arguments: &TopArguments) -> Result<AttachedRun, CommandError> {
    let what = arguments.what.as_deref();
    if let Some(path) = what.map(Path::new).filter(|path| path.is_file()) {
        return Ok(AttachedRun::File(path.to_owned()));
    }
    let state = requests::state(&arguments.state).ok_or(ExplainError::NoStateDir)?;
    Ok(state.attach(what)?)
}
