//! One file per command: take the arguments, call the library, hand values to the report.

mod completions;
mod predict;
mod probe;
mod replay;

pub(crate) use completions::completions;
pub(crate) use predict::predict;
pub(crate) use probe::probe;
pub(crate) use replay::replay;
