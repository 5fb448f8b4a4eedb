//! A first job file, from a command and what its script accepts.
//!
//! Read first: [`draft`]. The table of option names is in `names.rs`, the text in `write.rs`.

mod choose;
mod given;
mod names;
mod write;

#[cfg(test)]
mod tests;

use serde::Deserialize;

use crate::job::ConfigFile;
use crate::job::value::Value;

/// What a script accepts, as its parser of arguments told.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Accepts {
    pub framework: Framework,
    pub options: Vec<ScriptOption>,
    /// YAML and JSON files that the command names.
    #[serde(skip)]
    pub configs: Vec<ConfigFile>,
}

/// Whose parser it was. It decides where checkpoints are looked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    #[default]
    Argparse,
    /// `HfArgumentParser`.
    HuggingFace,
    /// `LightningCLI`, or another one on jsonargparse.
    Lightning,
    /// Overrides such as `train.batch_size=8`.
    Hydra,
}

/// One option of a script.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ScriptOption {
    /// `-b`, `--batch-size`.
    pub flags: Vec<String>,
    /// The name under which the script finds it.
    pub dest: String,
    pub takes: Takes,
    pub default: Option<Value>,
    pub choices: Vec<Value>,
    pub help: String,
}

/// What follows an option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Takes {
    #[default]
    Value,
    /// Nothing; it stands for true.
    Nothing,
    /// Nothing; it stands for false.
    NothingOff,
    /// Nothing; `--x` is true and `--no-x` is false.
    Both,
    /// `true` or `false`.
    Word,
    /// Any text is true and the empty one false: `type=bool`.
    AnyText,
}

/// A job file that was drafted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    pub text: String,
    /// Knobs that it turns, in its order.
    pub knobs: Vec<String>,
    /// What neither the script's options nor its config files have, for people.
    pub missing: Vec<&'static str>,
}

/// The words of a command that are the script's own, not its launcher's.
pub fn script_arguments(command: &[String]) -> &[String] {
    &command[given::script_at(command)..]
}

/// Writes a job file for a command. What stands on the command line is what is wanted; knobs that change the result are
/// written as comments.
pub fn draft(command: &[String], accepts: &Accepts) -> Draft {
    write::write(&choose::choose(command, accepts))
}
