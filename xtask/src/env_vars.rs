//! The environment variables that the tasks read.

pub(crate) const BRIMFUL_CACHE: &str = "BRIMFUL_CACHE";
pub(crate) const CARGO: &str = "CARGO";
pub(crate) const CARGO_HOME: &str = "CARGO_HOME";
pub(crate) const CARGO_TARGET_DIR: &str = "CARGO_TARGET_DIR";
pub(crate) const HOME: &str = "HOME";
pub(crate) const PATH: &str = "PATH";
pub(crate) const RUSTC: &str = "RUSTC";
