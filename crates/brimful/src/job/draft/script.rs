//! What a script accepts on its command line.

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
