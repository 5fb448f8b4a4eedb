//! Runs programs under the library, on trees whose fingerprint must not change.

mod branches;
mod connections;
mod differential;
mod programs;
mod world;
