//! Static HTML with no script and no outside resource, for notebooks and pages.

mod plan;
mod predict;
mod probe;

pub use plan::plan;
pub use predict::predict;
pub use probe::probe;
