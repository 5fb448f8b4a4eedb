//! The value of a knob, and one value for each.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a knob may be set to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    Flag(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

/// One value per knob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(pub BTreeMap<String, Value>);

impl Settings {
    pub fn get(&self, knob: &str) -> Option<&Value> {
        self.0.get(knob)
    }

    pub fn set(&mut self, knob: &str, value: impl Into<Value>) {
        self.0.insert(knob.to_owned(), value.into());
    }

    /// The same with another value for one knob.
    #[must_use]
    pub fn with(&self, knob: &str, value: impl Into<Value>) -> Settings {
        let mut changed = self.clone();
        changed.set(knob, value);
        changed
    }

    /// A whole number that is not negative.
    pub fn count(&self, knob: &str) -> Option<u64> {
        self.get(knob)?.count()
    }

    pub fn flag(&self, knob: &str) -> Option<bool> {
        match self.get(knob)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub fn text(&self, knob: &str) -> Option<&str> {
        match self.get(knob)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Value {
    /// A whole number that is not negative.
    pub fn count(&self) -> Option<u64> {
        match self {
            Value::Whole(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => write!(f, "{flag}"),
            Value::Whole(number) => write!(f, "{number}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Text(text) => f.write_str(text),
        }
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Flag(flag)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}
