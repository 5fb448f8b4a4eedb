//! Errors in a job file or an override, with their line and how to fix them.

use std::fmt;

use crate::job::template::BraceProblem;
use crate::printable::is_printable;

/// Characters of a quoted name or value.
const MAX_QUOTED: usize = 60;
/// Characters of a parser's own message.
const MAX_REASON: usize = 200;

/// A job file or an override that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    /// Counted from 1; `None` for a mistake that has no position in the file.
    pub line: Option<usize>,
    pub mistake: Box<Mistake>,
}

/// What is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    #[error("the job file is larger than 1 MB")]
    TooLarge,
    #[error("invalid TOML: {}", clean(.message, MAX_REASON))]
    InvalidToml { message: String },
    /// An unknown table or key.
    #[error("unknown {what} `{}`{}{}", short(.found), location(.table), suggestion(.close))]
    Unknown {
        what: &'static str,
        found: String,
        /// `[job]`, `[knobs]`, …; empty for the file itself.
        table: String,
        close: Vec<String>,
        known: Vec<String>,
    },
    #[error("{key} is missing")]
    Missing {
        key: &'static str,
        example: &'static str,
    },
    #[error("`{}` must be {expected}; found {}", short(.key), short(.found))]
    WrongType {
        key: String,
        expected: &'static str,
        found: String,
    },
    #[error(
        "invalid name `{}`: a name starts with a letter or `_` and contains only letters, digits, `_`, `-` and `.`",
        short(.name)
    )]
    InvalidName { name: String },
    #[error("too many {what}: the maximum is {limit}")]
    TooMany { what: &'static str, limit: usize },
    #[error("`command` must be a list of arguments, not a string")]
    CommandIsString,
    /// The same value listed twice.
    #[error("`{}` lists `{}` twice", short(.key), short(.value))]
    Duplicate { key: String, value: String },
    #[error("invalid placeholder in `{}`: {}", short(.part), brace_problem(*.problem))]
    Braces { part: String, problem: BraceProblem },
    #[error("unknown placeholder `{{{}}}`{}", short(.name), suggested_placeholder(.close))]
    UnknownPlaceholder {
        name: String,
        close: Vec<String>,
        known: Vec<String>,
    },
    /// A config file that no argument of the command names.
    #[error("[config.\"{0}\"]: the command does not name `{0}`", short(.path))]
    ConfigNotInCommand { path: String },
    /// `{checkpoint}` in the command.
    #[error("`{{checkpoint}}` is not allowed in `command`")]
    CheckpointInCommand,
    /// The micro-batch may change, but the effective batch size is not set.
    #[error("`micro_batch` has several values, but [keep] does not set `effective_batch`")]
    NoEffectiveBatch,
    /// The micro-batch may change, but the accumulation is not passed to the script.
    #[error(
        "`micro_batch` has several values, but neither the command nor a config file contains `{{accumulation}}`"
    )]
    NoAccumulationPlaceholder,
    /// No listed micro-batch divides the effective batch size.
    #[error(
        "no value of `micro_batch` ({}) divides the effective batch size of {effective_batch}",
        listed(.found)
    )]
    NotADivisor {
        effective_batch: u64,
        found: Vec<String>,
    },
    /// `accumulation` among the knobs.
    #[error(
        "`accumulation` cannot be a knob: brimful computes it from `effective_batch` and `micro_batch`"
    )]
    AccumulationIsDerived,
    /// `"auto"` for a knob that brimful does not know.
    #[error(
        "`{}` cannot be \"auto\": brimful does not know its values{}",
        short(.knob),
        suggestion(.close)
    )]
    AutoUnknown { knob: String, close: Vec<String> },
    /// A setting that PyTorch's allocator would reject.
    #[error("invalid `allocator` settings `{}`: {}", short(.text), clean(.problem, MAX_REASON))]
    Allocator { text: String, problem: String },
    /// A knob in `sacrifice` that does not change the training result.
    #[error("`sacrifice` must not list `{}`, which does not change the training result", short(.knob))]
    NotASacrifice { knob: String },
    #[error("unknown mode `{}`{}", short(.found), suggestion(.close))]
    UnknownMode {
        found: String,
        close: Vec<String>,
        known: Vec<String>,
    },
    /// Not `KNOB=VALUE`.
    #[error("invalid override `{}`: expected KNOB=VALUE, for example `workers=2`", short(.found))]
    InvalidOverride { found: String },
}

impl JobError {
    pub(crate) fn new(line: Option<usize>, mistake: Mistake) -> JobError {
        JobError {
            line,
            mistake: Box::new(mistake),
        }
    }

    pub(crate) fn at(line: usize, mistake: Mistake) -> JobError {
        JobError::new(Some(line), mistake)
    }

    pub(crate) fn nowhere(mistake: Mistake) -> JobError {
        JobError::new(None, mistake)
    }

    /// What to do next.
    pub fn hints(&self) -> Vec<String> {
        self.mistake.hints()
    }
}

impl std::error::Error for JobError {}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}", self.mistake)
    }
}

impl Mistake {
    fn hints(&self) -> Vec<String> {
        match self {
            Mistake::Unknown { what, known, .. } => valid(what, known),
            Mistake::UnknownPlaceholder { known, .. } => {
                let mut hints = valid("placeholder", known);
                hints.push("to write a literal brace, double it: {{ or }}".into());
                hints
            }
            Mistake::UnknownMode { known, .. } if known.is_empty() => {
                vec!["this job file has no modes; add a table, for example [modes.debug]".into()]
            }
            Mistake::UnknownMode { known, .. } => valid("mode", known),
            Mistake::AutoUnknown { knob, .. } => vec![format!(
                "list its values, preferred value first: `{} = [64, 32]`",
                short(knob)
            )],
            Mistake::Missing { example, .. } => vec![format!("add {example}")],
            Mistake::CommandIsString => vec![
                "for example: command = [\"python\", \"train.py\", \"--workers\", \"{workers}\"]"
                    .into(),
            ],
            Mistake::Duplicate { .. } => vec!["remove one of them".into()],
            Mistake::Braces { .. } => vec![
                "write a placeholder as {workers}".into(),
                "to write a literal brace, double it: {{ or }}".into(),
            ],
            Mistake::ConfigNotInCommand { path } => vec![format!(
                "write the path as it is in the command, for example \"--config\", \"{}\"",
                short(path)
            )],
            Mistake::CheckpointInCommand => vec![
                "set resume = [\"--resume\", \"{checkpoint}\"]; brimful adds it to the command when there is a checkpoint"
                    .into(),
            ],
            Mistake::NoEffectiveBatch => vec![
                "set the number of samples per optimizer step, for example `effective_batch = 128`"
                    .into(),
            ],
            Mistake::NoAccumulationPlaceholder => vec![
                "pass it to the option of your script, for example \"--accumulate\", \"{accumulation}\" (Hugging Face: \
                 \"--gradient_accumulation_steps\", Lightning: \"--trainer.accumulate_grad_batches\")"
                    .into(),
                "if the script computes the accumulation itself, pass \"{effective_batch}\"".into(),
                "if the script cannot accumulate gradients, remove the knob micro_batch".into(),
            ],
            Mistake::NotADivisor { .. } => {
                vec!["list divisors of it, or set micro_batch = \"auto\"".into()]
            }
            Mistake::AccumulationIsDerived => {
                vec!["remove it, and use the placeholder `{accumulation}` in the command".into()]
            }
            Mistake::NotASacrifice { .. } => {
                vec!["remove it; brimful may always change it".into()]
            }
            Mistake::InvalidOverride { .. } => vec![
                "separate several values with commas, preferred value first: resolution=24,16".into(),
            ],
            Mistake::WrongType { found, .. } if found == "a table" => {
                vec!["quote a name that contains dots: \"data.width\" = 64".into()]
            }
            Mistake::TooLarge
            | Mistake::InvalidToml { .. }
            | Mistake::WrongType { .. }
            | Mistake::InvalidName { .. }
            | Mistake::TooMany { .. }
            | Mistake::Allocator { .. } => Vec::new(),
        }
    }
}

fn location(table: &str) -> String {
    if table.is_empty() {
        String::new()
    } else {
        format!(" in {table}")
    }
}

fn suggestion(close: &[String]) -> String {
    match close.first() {
        Some(name) => format!(" (did you mean `{}`?)", short(name)),
        None => String::new(),
    }
}

fn suggested_placeholder(close: &[String]) -> String {
    match close.first() {
        Some(name) => format!(" (did you mean `{{{}}}`?)", short(name)),
        None => String::new(),
    }
}

fn brace_problem(problem: BraceProblem) -> &'static str {
    match problem {
        BraceProblem::NotClosed => "a `{` has no `}`",
        BraceProblem::NotOpened => "a `}` has no `{`",
        BraceProblem::NoName => "there is no name between the braces",
    }
}

fn valid(what: &str, known: &[String]) -> Vec<String> {
    match known {
        [] => Vec::new(),
        [only] => vec![format!("the only valid {what} is {}", short(only))],
        known => vec![format!("valid {what}s are {}", listed(known))],
    }
}

fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(20).map(|name| short(name)).collect();
    names.join(", ")
}

/// A name or value from an untrusted file, for a message.
fn short(text: &str) -> String {
    clean(text, MAX_QUOTED)
}

/// Text from an untrusted file, without control characters and with at most `max_chars` characters.
fn clean(text: &str, max_chars: usize) -> String {
    let mut kept: String = text
        .chars()
        .take(max_chars)
        .map(|c| if is_printable(c) { c } else { ' ' })
        .collect();
    if text.chars().count() > max_chars {
        kept.push('…');
    }
    kept
}
