//! A first job file, from a command and what its script accepts.
//!
//! Read first: [`draft`]. The table of option names is in `names.rs`, the text in `write.rs`.

mod choose;
mod given;
mod names;
mod script;
mod write;

#[cfg(test)]
mod tests;

pub use script::{Accepts, Framework, ScriptOption, Takes};
pub use write::Draft;

/// The words of a command that are the script's own, not its launcher's.
pub fn script_arguments(command: &[String]) -> &[String] {
    &command[given::script_at(command)..]
}

/// Writes a job file for a command. What stands on the command line is what is wanted; knobs that change the result are
/// written as comments.
pub fn draft(command: &[String], accepts: &Accepts) -> Draft {
    write::write(&choose::choose(command, accepts))
}
