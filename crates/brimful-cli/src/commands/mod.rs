//! One file per command: take the arguments, call the library, hand values to the report.

mod attached;
mod completions;
mod explain;
mod init;
mod plan;
mod predict;
mod probe;
mod replay;
mod report;
mod run;
mod runs;
mod termination;

pub(crate) use attached::{ARGUMENT as ATTACHED_ARGUMENT, attached};
pub(crate) use completions::completions;
pub(crate) use explain::explain;
pub(crate) use init::init;
pub(crate) use plan::plan;
pub(crate) use predict::predict;
pub(crate) use probe::probe;
pub(crate) use replay::replay;
pub(crate) use report::report;
pub(crate) use run::run;
pub(crate) use runs::runs;
