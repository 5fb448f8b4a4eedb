//! One file per command: take the arguments, call the library, hand values to the report.

mod compare;
mod completions;
mod explain;
mod fleet;
mod init;
mod plan;
mod predict;
mod prepare;
mod probe;
mod process_watch;
mod rank;
mod replay;
mod report;
mod run;
mod runs;
mod termination;
mod top;
mod verify;

pub(crate) use compare::compare;
pub(crate) use completions::completions;
pub(crate) use explain::explain;
pub(crate) use init::init;
pub(crate) use plan::plan;
pub(crate) use predict::predict;
pub(crate) use prepare::{prepare, prepare_task};
pub(crate) use probe::probe;
pub(crate) use process_watch::{ARGUMENT as PROCESS_WATCH_ARGUMENT, process_watch};
pub(crate) use rank::rank;
pub(crate) use replay::replay;
pub(crate) use report::report;
pub(crate) use run::run;
pub(crate) use runs::runs;
pub(crate) use top::top;
pub(crate) use verify::verify;
