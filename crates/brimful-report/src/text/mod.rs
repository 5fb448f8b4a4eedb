//! Pages for the terminal.

mod compare;
mod explain;
pub(crate) mod fleet;
pub mod ladder;
mod machine_gpus;
mod page;
mod plan;
mod predict;
mod predict_host;
mod probe;
mod replay;
mod request;
pub mod run;
mod runs;
mod side_effects;
mod speed;
mod table;
mod verify;

pub use compare::compare;
pub(crate) use compare::{cost_words, hours_words};
pub(crate) use explain::{attempt_words, capitalized, confidence, source_name};
pub use explain::{explain, explain_attempts, termination_message};
pub use fleet::fleet;
pub use page::Page;
pub use plan::{machine_title, plan, short};
pub use predict::{grouped, predict, predict_line};
pub(crate) use predict::{term_name, verdict_words};
pub(crate) use predict_host::host_term_name;
pub use probe::probe;
pub use replay::replay;
pub use request::{RequestedJob, Scheduler, request};
pub use runs::runs;
pub(crate) use speed::{rate, seconds_words};
pub use verify::verify;
