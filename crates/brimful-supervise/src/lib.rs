//! Starts, watches and ends a training process, and writes its run record.
//!
//! Decides nothing: what to make of a sample and what to do next is asked of [`brimful::watch`], why it died of
//! [`brimful::explain`]. Prints nothing: who calls makes sentences of what is noticed ([`Audience`]).
//!
//! A supervisor must never make things worse. What it cannot do becomes a gap that is told once; a bug in the watch ends
//! the watch, not the training; a start that fails leaves a training without supervision, not without a start
//! ([`StartStep`]); and when brimful itself is killed, a second process keeps the streams open and records the end.
//!
//! Read first: [`run()`] and [`RunSettings`], [`run_attempts`] and [`Ladder`] for a run that comes back; then `streams.rs` and `terminal.rs` for what passes through.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests make files of all kinds")
)]

pub mod checkpoints;
pub mod fault;
pub mod gauge;
pub mod hook;
pub mod keeper;
pub mod roles;

mod attach;
mod attempts;
mod by_signal;
mod caller;
mod checkpoint_watch;
mod clock;
mod command;
mod contain;
mod context;
mod descriptors;
mod display;
mod ending;
mod exit_status;
mod explained;
mod follow;
mod gpu_owners;
mod history;
mod host_name;
mod kernel_log;
mod ladder;
mod last_resort;
mod launch;
mod metrics;
mod notice;
mod own_pages;
mod parent;
mod pressure;
mod process_control;
mod process_watch;
mod recorder;
mod recording;
mod relay;
mod run;
mod running;
mod sampler;
mod scope;
mod send;
mod settings;
mod signals;
mod start;
mod start_step;
mod state;
mod status_line;
mod steps;
mod streams;
mod tail;
mod terminal;
mod undo;
mod watcher;

pub use attach::AttachedRun;
pub use attempts::RunEnd;
pub use by_signal::end_by_signal;
pub use explained::{explain_record, snapshot_beside};
pub use follow::{Followed, RecordFollower};
pub use history::{job_file_stem, job_key};
pub use host_name::host_name;
pub use ladder::{AttemptEnd, Ladder, NextAttempt};
pub use notice::{Audience, Notice};
pub use parent::stop_with_parent;
pub use process_watch::{ProcessWatchError, ProcessWatchSettings, leave_session, watch_process};
pub use run::{RunError, run, run_attempts};
pub use settings::RunSettings;
pub use start_step::StartStep;
pub use state::{RunNotFound, StateDir, StoredRun};
pub use steps::step;
