//! Pages for the terminal.

mod page;
mod predict;
mod probe;
mod replay;
mod table;

pub use page::Page;
pub use predict::predict;
pub(crate) use predict::{term_name, verdict_words};
pub use probe::probe;
pub use replay::replay;
