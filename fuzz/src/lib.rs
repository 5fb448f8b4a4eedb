//! Fuzz targets: one per kind of input that brimful does not write itself.
//!
//! A target takes any bytes and must neither panic nor hold more memory than it says. Who calls it is somebody else:
//! `libfuzzer/` looks for new inputs (`cargo xtask fuzz`), and `tests/corpus.rs` runs those that are kept in `corpus/`,
//! and the seeds of `Cargo.toml`, with every submission.

mod directory;
mod document;
mod input;
mod targets;

pub use input::quiet_panics;
pub use targets::{TARGETS, Target};
