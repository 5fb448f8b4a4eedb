//! Pages and documents of recorded machines.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops where its expectation fails"
)]

mod document;
mod html;
mod job;
mod pages;
mod plan;
mod report;
mod request;
