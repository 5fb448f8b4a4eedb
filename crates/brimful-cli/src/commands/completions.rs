//! `brimful completions`.

use crate::args::{CompletionsArguments, definition};
use crate::error::CommandError;
use crate::output::Output;

pub(crate) fn completions(
    arguments: &CompletionsArguments,
    output: &Output,
) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition(), "brimful", &mut script);
    output.print(&String::from_utf8_lossy(&script))
}
