//! Overrides such as `workers=2` on the command line.

use std::str::FromStr;

use crate::job::bounds::MAX_VALUES;
use crate::job::error::{JobError, Mistake};
use crate::job::knobs;
use crate::job::template::is_name;
use crate::job::value::Value;

/// A knob or another value in place of what the job file says.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    pub key: String,
    /// One value, or those that are accepted in their order.
    pub values: Vec<Value>,
}

impl Override {
    /// The value as it may have been typed.
    pub(super) fn typed(&self) -> String {
        let values: Vec<String> = self.values.iter().map(ToString::to_string).collect();
        format!("`{}`", values.join(","))
    }
}

impl FromStr for Override {
    type Err = JobError;

    fn from_str(text: &str) -> Result<Override, JobError> {
        let mistake = || {
            JobError::nowhere(Mistake::InvalidOverride {
                found: text.to_owned(),
            })
        };
        let (key, values) = text.split_once('=').ok_or_else(mistake)?;
        if !is_name(key) || values.contains('\0') {
            return Err(mistake());
        }
        // The allocator's settings have commas of their own.
        let values: Vec<Value> = if key == knobs::ALLOCATOR {
            vec![Value::Text(values.to_owned())]
        } else {
            values.split(',').map(value).collect()
        };
        if values.len() > MAX_VALUES {
            return Err(JobError::nowhere(Mistake::TooMany {
                what: "values of a knob",
                limit: MAX_VALUES,
            }));
        }
        Ok(Override {
            key: key.to_owned(),
            values,
        })
    }
}

/// A value as it is typed: a number, `true`, `false`, or text.
pub(super) fn value(text: &str) -> Value {
    match text {
        "true" => return Value::Flag(true),
        "false" => return Value::Flag(false),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return Value::Whole(number);
    }
    match text.parse::<f64>() {
        // `inf` and `nan` are words here.
        Ok(number) if number.is_finite() => Value::Number(number),
        _ => Value::Text(text.to_owned()),
    }
}
