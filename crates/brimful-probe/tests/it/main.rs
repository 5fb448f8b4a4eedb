//! The readers against recorded machines, hostile files and a stand-in for the driver's library.

#![expect(clippy::disallowed_methods, reason = "tests make files of all kinds")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops where its expectation fails"
)]

mod fake_nvml;
mod hostile;
mod isolation;
mod python;
mod recorded;
