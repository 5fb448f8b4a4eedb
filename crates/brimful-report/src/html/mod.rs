//! Static HTML with no script and no outside resource, for notebooks and pages.

mod predict;
mod probe;

pub use predict::predict;
pub use probe::probe;
