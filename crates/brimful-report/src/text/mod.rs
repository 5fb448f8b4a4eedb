//! Pages for the terminal.

mod page;
mod probe;

pub use page::Page;
pub use probe::probe;
