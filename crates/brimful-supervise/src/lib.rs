//! Starts, watches and ends a training process, and writes its run record.
//!
//! Decides nothing: what to make of a sample and what to do next is asked of [`brimful::watch`], why it died of
//! [`brimful::explain`]. Prints nothing: who calls makes sentences of what is noticed ([`Audience`]).
//!
//! A supervisor must never make things worse. What it cannot do becomes a gap that is told once; a bug in the watch ends
//! the watch, not the training; and when brimful itself is killed, a second process keeps the streams open.
//!
//! Read first: [`run()`] and [`RunSettings`]; then `streams.rs` and `terminal.rs` for what passes through.

pub mod gauge;
pub mod hook;
pub mod keeper;
pub mod roles;

mod contain;
mod ending;
mod explained;
mod kernel_log;
mod launch;
mod metrics;
mod recorder;
mod relay;
mod run;
mod running;
mod sampler;
mod scope;
mod signals;
mod state;
mod status_line;
mod streams;
mod tail;
mod terminal;

pub use explained::explain_record;
pub use run::{Audience, Notice, RunEnd, RunError, RunSettings, run};
pub use state::{RunNotFound, StateDir, StoredRun};
