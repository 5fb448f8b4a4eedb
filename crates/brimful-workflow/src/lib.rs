//! Predicting, planning, running and explaining from end to end.
//!
//! The command and the Python extension each turn their arguments into a request, pass a callback for progress, and
//! print what comes back. Everything between them is here, once: the state directory, the job key, the cache of
//! rehearsals, the native libraries, isolation, and the order of the steps.
//!
//! Nothing here prints, reads command-line arguments or handles signals. Every callback returns a
//! [`ControlFlow`](std::ops::ControlFlow), so the caller can interrupt the work; what was started has ended by the time
//! the function returns.
//!
//! Read first: [`predict()`], [`plan()`], and [`prepare`] with [`JobLadder`] for a run that restarts with less memory.

#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests create ordinary files")
)]

mod chosen_gpus;
mod compare;
mod compare_plans;
mod error;
mod explain;
mod gpus;
mod idle;
mod job;
mod ladder;
mod layout;
mod libraries;
mod machine;
mod measured;
mod nodes;
mod options;
mod plan;
mod planned;
mod predict;
mod progress;
mod replay;
mod report;
mod run;
mod runs;
mod state;
mod verify;
mod verify_error;

pub use compare::{CompareOptions, CompareRequest, RequestedLength, compare};
pub use compare_plans::{ComparePlansRequest, compare_plans};
pub use error::{NoCommand, WorkflowError};
pub use explain::{ExplainError, Explained, explain};
pub use idle::GpuBusy;
pub use job::{FoundJob, JobRequest, find_job};
pub use ladder::{JobLadder, age_ms};
pub use libraries::Libraries;
pub use machine::{MachineRequest, describe_machine};
pub use measured::{command_digest, remember_gpu};
pub use nodes::{NoSharedDirectory, RANK_ARGUMENT, RankError, Store, StoreError, become_rank};
pub use options::{IsolationOptions, RehearsalOptions};
pub use plan::{PlanRequest, plan};
pub use planned::PlannedJob;
pub use predict::{PredictRequest, PredictedRun, predict};
pub use progress::Progress;
pub use replay::{ReplayError, ReplayRequest, replay};
pub use report::{
    DEFAULT_REPORT, ReportError, check_report_path, report, report_beside_record, report_document,
    write_report,
};
pub use run::{RunRequest, prepare, prune_records};
pub use runs::{
    RunFollower, UnrecordedRun, run_of_supervisor, runs, unrecorded_runs, unshown_kill,
};
pub use state::{state_dir, working_directory};
pub use verify::{DEFAULT_VERIFY_FILE, VerifyRequest, check_verify_path, verify};
pub use verify_error::VerifyError;
