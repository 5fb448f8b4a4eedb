//! The program from outside, as a user meets it.

#![expect(clippy::disallowed_methods, reason = "tests make files of all kinds")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test stops where its expectation fails"
)]

mod config;
mod context;
mod errors;
mod explain;
mod gpu_hidden;
mod init;
mod isolation;
mod keeper;
mod kernel_agrees;
mod never_worse;
mod other_user;
mod own_logs;
mod plan;
mod predict;
mod probe;
mod replay;
mod report;
mod resume;
mod run;
mod start_faults;
mod top;
mod usage;
