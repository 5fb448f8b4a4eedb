//! Pages for the terminal.

mod explain;
mod page;
mod predict;
mod probe;
mod replay;
pub mod run;
mod runs;
mod table;

pub use explain::explain;
pub use page::Page;
pub use predict::predict;
pub(crate) use predict::{term_name, verdict_words};
pub use probe::probe;
pub use replay::replay;
pub use runs::runs;
