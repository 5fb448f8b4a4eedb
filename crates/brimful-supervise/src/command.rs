//! A command line as text.

use std::ffi::OsString;

pub(crate) fn words(command: &[OsString]) -> Vec<String> {
    command
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

/// Bytes of a command that are recorded. Some name every file of a dataset.
const MAX_RECORDED_COMMAND: usize = 128 << 10;

/// A command as it is recorded: without its secrets, and not longer than a line may be.
pub(crate) fn recorded(command: &[OsString]) -> Vec<String> {
    let mut recorded = brimful::secrets::mask_command(&words(command));
    let mut left = MAX_RECORDED_COMMAND;
    let n_fit = recorded
        .iter()
        .take_while(|word| {
            let fits = word.len() < left;
            left = left.saturating_sub(word.len() + 1);
            fits
        })
        .count();
    let n_more = recorded.len() - n_fit;
    recorded.truncate(n_fit);
    if n_more > 0 {
        recorded.push(format!("... ({n_more} more)"));
    }
    recorded
}
