//! Runs the user's own training script for a few steps on the phantom GPU and brings back what it allocated.
//!
//! Starts processes, isolated from the user's files, and writes into temporary directories, nothing else. What the trace
//! means is decided in `brimful`.
//!
//! Read first: [`predict`], a prediction from end to end; [`rehearse`], one run of the script; [`stage::Stage`], how the
//! phantom stands in for NVIDIA's libraries; [`plan`], rehearsals until settings are found; [`accepts()`], what a script
//! takes on its command line.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests make files of all kinds")
)]

pub mod config_files;
pub mod facts;
#[doc(hidden)]
pub mod fuzzing;
pub mod job_file;
pub mod stage;

mod accepts;
mod connections;
mod cudnn;
mod error;
mod events;
mod guard;
mod host;
mod outcome;
mod planning;
mod prediction;
mod protection;
mod real_run;
#[cfg(all(test, unix))]
mod recorded_tests;
mod reports;
mod request;
mod results;
mod run;
mod script_end;
mod side_effects;
mod stacks;
mod stall;
mod trackers;
mod workload;

pub use accepts::{Accepted, AcceptsError, HardCoded, Waiting, accepts};
pub use config_files::{ConfigFileError, ConfigFiles};
pub use connections::{Connection, Connections, Socket};
pub use error::RehearsalError;
pub use events::{Event, Progress};
pub use guard::NotRestored;
pub use host::{HostReport, host_facts, pace};
pub use job_file::JobFileError;
pub use outcome::Variant;
pub use planning::{Cache, PlanError, PlanEvent, PlanQuestion, Planned, plan};
pub use prediction::{
    FailedCard, NO_CARD, Prediction, PredictionError, Question, USUAL_CARDS, predict,
};
pub use protection::{Protection, ProtectionRequest};
pub use real_run::{MeasuredDevice, MeasuredProcess, RealRun, RealRunRequest, run_for_real};
pub use reports::LastStep;
pub use request::RehearsalRequest;
pub use results::Rehearsed;
pub use run::{Rehearsal, rehearse};
pub use script_end::ScriptEnd;
pub use side_effects::SideEffects;
pub use workload::{phantom_devices, workload};
