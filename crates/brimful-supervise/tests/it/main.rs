//! The supervisor's parts against real, small processes.

#![expect(clippy::disallowed_methods, reason = "tests make files of all kinds")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops where its expectation fails, and says why it was skipped"
)]

mod hook;
mod ladder;
