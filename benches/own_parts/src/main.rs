//! Hand-written parts of brimful beside the libraries that could replace them.
//!
//! ```text
//! cargo run --release --manifest-path benches/own_parts/Cargo.toml -- resize|phrases|index|zip|share
//! ```
//!
//! Private parts are compiled from their source files, so that they need not be made public to be measured. The results
//! and what follows from them are in docs/design/2026-11-own-parts.md.

mod checkpoints;
mod index;
mod kernels;
mod memory;
mod phrases;
mod resize;
mod rounds;
mod share;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("resize") => resize::run(),
        Some("phrases") => phrases::run(),
        Some("index") => index::run(),
        Some("zip") => checkpoints::run(),
        Some("share") => share::run(),
        _ => {
            eprintln!("expected resize, phrases, index, zip or share");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
