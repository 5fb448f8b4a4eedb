//! What a running job looks like at a moment, and what to do about it.
//!
//! The supervisor takes a [`Sample`] and hands it to [`Watch::observe`]; what comes back is a list of [`Alarm`]s.
//! [`next_action()`] decides what to do, [`next_interval`] when to look again. Nothing here reads a clock:
//! a sample carries its own time, so a recorded run can be watched again.
//!
//! What is remembered has one file per subject (`host.rs`, `progress.rs`, `workers.rs`, `gpus.rs`, …) and a bound on
//! its size; what is made of it has one file per sign of trouble in [`detectors`]. `danger.rs` holds the thresholds at
//! which the supervisor acts.

pub mod detectors;

mod action;
mod alarm;
mod interval;
mod looks;
mod next_action;
mod observe;
mod sample;
mod state;

mod danger;
mod pressure;

mod gpus;
mod host;
mod progress;
mod retries;
mod series;
mod stalls;
mod trend;
mod words;
mod workers;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

pub use action::{Action, OnPressure, StopReason, WatchRules};
pub use alarm::{Alarm, Urgency};
pub use interval::next_interval;
pub use next_action::next_action;
pub use observe::Watch;
pub use sample::{
    Gauge, GpuSample, HostSample, Lowest, ProcessSample, Role, Sample, SharedMemorySample, Stall,
};
pub use state::{Standing, WatchState};
pub(crate) use trend::Trend;
