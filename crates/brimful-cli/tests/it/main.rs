//! The program from outside, as a user meets it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test stops where its expectation fails"
)]

mod context;
mod init;
mod isolation;
mod kernel_agrees;
mod plan;
mod predict;
mod probe;
mod replay;
mod resume;
mod run;
mod usage;
