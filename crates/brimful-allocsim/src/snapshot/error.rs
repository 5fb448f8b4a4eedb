//! Why a snapshot was not read, and where in it.

use crate::pickle::{PickleError, Value};

/// Why a snapshot was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Pickle(#[from] PickleError),
    #[error("expected a memory snapshot with `segments`, found {found}")]
    NotASnapshot { found: String },
    #[error("{path}: expected {expected}, found {found}")]
    Field {
        path: String,
        expected: &'static str,
        found: &'static str,
    },
    #[error(
        "expected at most {limit} segments, blocks and events in a file of this size, found more at {path}"
    )]
    TooMany { path: String, limit: usize },
}

impl SnapshotError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            SnapshotError::Pickle(error) => error.hint(),
            SnapshotError::NotASnapshot { .. } => {
                "pass a file written by `torch.cuda.memory._dump_snapshot(path)`"
            }
            SnapshotError::Field { .. } => {
                "if torch wrote this file as it is, report its version with this message"
            }
            SnapshotError::TooMany { .. } => {
                "torch does not write such files: the same list occurs many times"
            }
        }
    }
}

/// A field that is not what it should be.
pub(super) struct WrongField {
    pub(super) name: &'static str,
    pub(super) expected: &'static str,
    pub(super) found: &'static str,
}

impl WrongField {
    pub(super) fn missing(name: &'static str, expected: &'static str) -> WrongField {
        WrongField {
            name,
            expected,
            found: "nothing",
        }
    }

    pub(super) fn below(self, path: &str) -> SnapshotError {
        let dot = if self.name.is_empty() { "" } else { "." };
        SnapshotError::Field {
            path: format!("{path}{dot}{}", self.name),
            expected: self.expected,
            found: self.found,
        }
    }
}

pub(super) fn wrong(name: &'static str, expected: &'static str, value: Value<'_>) -> WrongField {
    WrongField {
        name,
        expected,
        found: match value {
            Value::Int(number) if number < 0 => "a negative integer",
            other => other.kind(),
        },
    }
}

pub(super) fn other_text(name: &'static str, expected: &'static str) -> WrongField {
    WrongField {
        name,
        expected,
        found: "another text",
    }
}

pub(super) fn beyond_addresses(name: &'static str) -> WrongField {
    WrongField {
        name,
        expected: "a size that ends within 64 bits of addresses",
        found: "a larger one",
    }
}
