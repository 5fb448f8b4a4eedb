//! What is known, and why the rest is not.

use std::fmt;

/// A fact of a machine: known, or missing with the reason.
///
/// Unknown is not zero. A limit that could not be read must never look like "no limit",
/// and a GPU whose memory is hidden must never look like an empty one:
///
/// ```
/// use brimful::fact::{Fact, Gap};
/// use brimful::units::Bytes;
///
/// let swap: Fact<Bytes> = Fact::Missing(Gap::FileMissing { path: "/proc/meminfo".into() });
/// assert_eq!(swap.known(), None);
/// assert_eq!(swap.gap().unwrap().to_string(), "/proc/meminfo does not exist");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    Known(T),
    Missing(Gap),
}

/// Why a fact is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    FileMissing { path: String },
    FileUnreadable { path: String, error: String },
    FileMalformed { path: String, found: String },
    FieldMissing { path: String, field: String },
    NotRecorded { by: String },
    Unavailable { reason: String },
}

impl<T> Fact<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::Missing(_) => None,
        }
    }

    pub fn gap(&self) -> Option<&Gap> {
        match self {
            Fact::Known(_) => None,
            Fact::Missing(gap) => Some(gap),
        }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Fact::Known(value) => Fact::Known(change(value)),
            Fact::Missing(gap) => Fact::Missing(gap),
        }
    }

    pub fn and_then<U>(self, change: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Fact::Known(value) => change(value),
            Fact::Missing(gap) => Fact::Missing(gap),
        }
    }

    pub fn as_ref(&self) -> Fact<&T> {
        match self {
            Fact::Known(value) => Fact::Known(value),
            Fact::Missing(gap) => Fact::Missing(gap.clone()),
        }
    }

    /// The other fact where this one is missing.
    pub fn or_else(self, other: impl FnOnce() -> Fact<T>) -> Fact<T> {
        match self {
            Fact::Known(value) => Fact::Known(value),
            Fact::Missing(_) => other(),
        }
    }

    pub fn unavailable(reason: impl Into<String>) -> Fact<T> {
        Fact::Missing(Gap::Unavailable {
            reason: reason.into(),
        })
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gap::FileMissing { path } => write!(f, "{path} does not exist"),
            Gap::FileUnreadable { path, error } => write!(f, "{path} cannot be read: {error}"),
            Gap::FileMalformed { path, found } => {
                write!(f, "{path} has an unexpected format: {found:?}")
            }
            Gap::FieldMissing { path, field } => write!(f, "{path} has no line {field:?}"),
            Gap::NotRecorded { by } => write!(f, "not recorded in {by}"),
            Gap::Unavailable { reason } => f.write_str(reason),
        }
    }
}
