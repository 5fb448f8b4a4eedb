//! What a running job looks like at a moment, and what to do about it.
//!
//! The supervisor takes a [`Sample`] and hands it to [`Watch::observe`]; what comes back is a list of [`Alarm`]s.
//! [`next_action`] decides what to do, [`next_interval`] when to look again. Nothing here reads a clock:
//! a sample carries its own time, so a recorded run can be watched again.

pub mod detectors;

mod action;
mod alarm;
mod interval;
mod sample;
mod state;

pub use action::{Action, OnPressure, StopReason, WatchRules, next_action};
pub use alarm::{Alarm, Urgency};
pub use interval::next_interval;
pub use sample::{
    Gauge, GpuSample, HostSample, ProcessSample, Role, Sample, SharedMemorySample, Stall,
};
pub use state::{Watch, WatchState};
