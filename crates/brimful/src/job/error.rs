//! What is wrong with a job file, with its line and the way out.

use std::fmt;

use crate::job::template::BraceProblem;
use crate::printable::is_printable;

/// A job file or an override that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobError {
    /// From 1; nothing for what has no place in the file.
    pub line: Option<usize>,
    pub mistake: Box<Mistake>,
}

/// What was found in place of what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    TooLarge,
    NotToml {
        message: String,
    },
    /// A table or key that is not known.
    Unknown {
        what: &'static str,
        found: String,
        /// `[job]`, `[knobs]`, …; empty for the file itself.
        table: String,
        close: Vec<String>,
        known: Vec<String>,
    },
    Missing {
        key: &'static str,
        example: &'static str,
    },
    WrongType {
        key: String,
        expected: &'static str,
        found: String,
    },
    TooMany {
        what: &'static str,
        limit: usize,
    },
    CommandAsText,
    /// The same thing listed twice.
    Twice {
        key: String,
        value: String,
    },
    Braces {
        part: String,
        problem: BraceProblem,
    },
    UnknownPlace {
        place: String,
        close: Vec<String>,
        known: Vec<String>,
    },
    /// A config file that no word of the command names.
    ConfigNotInCommand {
        path: String,
    },
    /// `{checkpoint}` in the command.
    CheckpointInCommand,
    /// The micro-batch may change and nothing says what must be kept.
    NoEffectiveBatch,
    /// The micro-batch may change and the command has no place for the accumulation.
    NoPlaceForAccumulation,
    /// No micro-batch that is listed divides the effective batch.
    NotADivisor {
        effective_batch: u64,
        found: Vec<String>,
    },
    /// `accumulation` among the knobs.
    AccumulationIsDerived,
    /// `"auto"` for a knob that brimful does not know.
    AutoUnknown {
        knob: String,
        close: Vec<String>,
    },
    /// A setting of PyTorch's allocator that it would refuse.
    Allocator {
        text: String,
        problem: String,
    },
    /// A knob of the same science among those to be given up.
    NotASacrifice {
        knob: String,
    },
    UnknownMode {
        found: String,
        close: Vec<String>,
        known: Vec<String>,
    },
    /// Not `key=value`.
    NotAnOverride {
        found: String,
    },
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

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mistake::TooLarge => f.write_str("expected a file of at most 1 MB, found a larger one"),
            Mistake::NotToml { message } => write!(f, "expected TOML: {message}"),
            Mistake::Unknown {
                what, found, table, ..
            } => {
                write!(f, "expected a known {what}")?;
                if !table.is_empty() {
                    write!(f, " in {table}")?;
                }
                write!(f, ", found `{}`", short(found))
            }
            Mistake::Missing { key, .. } => write!(f, "expected {key}, found none"),
            Mistake::WrongType {
                key,
                expected,
                found,
            } => write!(
                f,
                "`{}`: expected {expected}, found {}",
                short(key),
                short(found)
            ),
            Mistake::TooMany { what, limit } => {
                write!(f, "expected at most {limit} {what}, found more")
            }
            Mistake::CommandAsText => {
                f.write_str("`command`: expected a list of words, found one text")
            }
            Mistake::Twice { key, value } => write!(
                f,
                "`{}`: expected different values, found `{}` twice",
                short(key),
                short(value)
            ),
            Mistake::Braces { part, problem } => {
                let found = match problem {
                    BraceProblem::NotClosed => "a `{` that is not closed",
                    BraceProblem::NotOpened => "a `}` without `{`",
                    BraceProblem::NoName => "something else between the braces",
                };
                write!(
                    f,
                    "expected places such as `{{workers}}` in `{}`, found {found}",
                    short(part)
                )
            }
            Mistake::UnknownPlace { place, .. } => write!(
                f,
                "expected a place for a knob or a mode's value, found `{{{}}}`",
                short(place)
            ),
            Mistake::ConfigNotInCommand { path } => write!(
                f,
                "[config.\"{0}\"]: no word of the command names `{0}`",
                short(path)
            ),
            Mistake::CheckpointInCommand => {
                f.write_str("expected `{checkpoint}` in `resume` only, found it in the command")
            }
            Mistake::NoEffectiveBatch => f.write_str(
                "`micro_batch` may change: expected `effective_batch` in [keep], found none",
            ),
            Mistake::NoPlaceForAccumulation => f.write_str(
                "`micro_batch` may change: expected a place for `{accumulation}` in the command or a config file, found none",
            ),
            Mistake::NotADivisor {
                effective_batch,
                found,
            } => write!(
                f,
                "`micro_batch`: expected a divisor of the effective batch {effective_batch}, found {}",
                listed(found)
            ),
            Mistake::AccumulationIsDerived => f.write_str(
                "`accumulation` is no knob: it follows from `effective_batch` and `micro_batch`",
            ),
            Mistake::AutoUnknown { knob, .. } => write!(
                f,
                "`{}`: expected the values that are accepted, found \"auto\"",
                short(knob)
            ),
            Mistake::Allocator { text, problem } => write!(
                f,
                "`allocator`: expected settings that PyTorch takes, found `{}`: {problem}",
                short(text)
            ),
            Mistake::NotASacrifice { knob } => write!(
                f,
                "`sacrifice`: expected knobs that change the result, found `{}`",
                short(knob)
            ),
            Mistake::UnknownMode { found, .. } => {
                write!(f, "expected a mode of the job, found `{}`", short(found))
            }
            Mistake::NotAnOverride { found } => write!(
                f,
                "expected `key=value`, such as `workers=2`, found `{}`",
                short(found)
            ),
        }
    }
}

impl Mistake {
    fn hints(&self) -> Vec<String> {
        match self {
            Mistake::Unknown {
                what, close, known, ..
            } => near(close, || format!("known {what}s: {}", listed(known))),
            // Either may be the one that is misspelt.
            Mistake::UnknownPlace { close, known, .. } => vec![match close.first() {
                Some(name) => format!("there is `{name}`: a place is spelt as its knob or value is"),
                None => format!(
                    "places here: {}; a brace that is meant is written twice: {{{{",
                    listed(known)
                ),
            }],
            Mistake::UnknownMode { close, known, .. } => near(close, || match known.as_slice() {
                [] => "the job has no modes; one is a table such as [modes.debug]".into(),
                known => format!("modes: {}", listed(known)),
            }),
            Mistake::AutoUnknown { knob, close } => near(close, || {
                format!(
                    "list them, first what is wanted: `{} = [64, 32]`",
                    short(knob)
                )
            }),
            Mistake::Missing { example, .. } => vec![format!("write {example}")],
            Mistake::CommandAsText => vec![
                "write a list, one word each: command = [\"python\", \"train.py\", \"--workers\", \"{workers}\"]"
                    .into(),
            ],
            Mistake::Twice { .. } => vec!["leave one out".into()],
            Mistake::Braces { .. } => {
                vec!["a brace that is meant is written twice: {{ or }}".into()]
            }
            Mistake::ConfigNotInCommand { path } => vec![format!(
                "write the path as the command has it, as in \"--config\", \"{}\"",
                short(path)
            )],
            Mistake::CheckpointInCommand => {
                vec!["write resume = [\"--resume\", \"{checkpoint}\"]: it is added when there is one".into()]
            }
            Mistake::NoEffectiveBatch => {
                vec!["write the samples of one optimizer step: [keep] effective_batch = 128".into()]
            }
            Mistake::NoPlaceForAccumulation => vec![
                "name the script's own option, as in \"--accumulate\", \"{accumulation}\" (Hugging Face: \
                 \"--gradient_accumulation_steps\", Lightning: \"--trainer.accumulate_grad_batches\")"
                    .into(),
                "a script that accumulates by itself takes \"{effective_batch}\"; one that cannot, no knob micro_batch"
                    .into(),
            ],
            Mistake::NotADivisor { .. } => {
                vec!["list divisors, or write micro_batch = \"auto\"".into()]
            }
            Mistake::AccumulationIsDerived => {
                vec!["leave it out; `{accumulation}` is a place in the command".into()]
            }
            Mistake::NotASacrifice { .. } => {
                vec!["leave it out: it is turned freely".into()]
            }
            Mistake::NotAnOverride { .. } => {
                vec!["several values are accepted in their order: resolution=24,16".into()]
            }
            Mistake::WrongType { found, .. } if found == "a table" => {
                vec!["a name with dots is written in quotes: \"data.width\" = 64".into()]
            }
            Mistake::TooLarge
            | Mistake::NotToml { .. }
            | Mistake::WrongType { .. }
            | Mistake::TooMany { .. }
            | Mistake::Allocator { .. } => Vec::new(),
        }
    }
}

fn near(close: &[String], otherwise: impl FnOnce() -> String) -> Vec<String> {
    match close.first() {
        Some(name) => vec![format!("did you mean `{name}`?")],
        None => vec![otherwise()],
    }
}

fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(20).map(|name| short(name)).collect();
    names.join(", ")
}

/// What a message quotes of a file of anyone's making.
fn short(text: &str) -> String {
    let mut kept: String = text
        .chars()
        .take(60)
        .map(|c| if is_printable(c) { c } else { ' ' })
        .collect();
    if text.chars().count() > 60 {
        kept.push('…');
    }
    kept
}
