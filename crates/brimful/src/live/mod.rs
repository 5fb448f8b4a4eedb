//! A run while it is in progress, as far as its record shows it: what `brimful top` draws.
//!
//! [`LiveRun::take`] takes the lines of a record one after the other. It holds the latest values, the newest events and
//! the history of each value as [`PeakColumns`], so a record of a day needs no more memory than one of ten minutes.
//! Nothing here reads a clock or a file: time is the time of the lines, and a recorded run can be shown again.
//!
//! Texts of a record are untrusted. What is kept of them is short and has no character that controls a terminal.

mod columns;
mod events;
mod gpus;
mod processes;
mod run;

#[cfg(test)]
mod properties;

pub use columns::{PeakColumns, TimeRange};
pub use events::{EventKind, LiveEvent, plain_text};
pub use gpus::{AllocatorUse, LiveGpu};
pub use processes::LiveProcess;
pub use run::{LiveAttempt, LiveCheckpoint, LiveEnd, LiveForecast, LiveProgress, LiveRun};
