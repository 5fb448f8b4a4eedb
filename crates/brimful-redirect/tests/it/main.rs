//! Runs programs under the library, on trees whose fingerprint must not change.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests make files of all kinds, and stop where an expectation fails"
)]

mod branches;
mod children;
mod connections;
mod differential;
mod programs;
mod world;
