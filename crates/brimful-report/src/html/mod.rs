//! Static HTML with no script and no outside resource, for notebooks and pages.

mod probe;

pub use probe::probe;
