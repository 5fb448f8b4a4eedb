//! One file per command: take the arguments, call the library, hand values to the report.

mod completions;
mod probe;

pub(crate) use completions::completions;
pub(crate) use probe::probe;
