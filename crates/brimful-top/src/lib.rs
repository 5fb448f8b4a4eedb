//! The live view of a run in a terminal: what `brimful top` shows.
//!
//! It draws a [`brimful::live::LiveRun`] and handles keys. What is shown is decided there; here are the layout, the
//! terminal and the loop. It reads the run record and nothing else: it takes no lock, sends no signal, looks at no
//! process and creates no CUDA context.
//!
//! Read first: [`watch`], the loop, and `layout.rs`, which chooses the panels of a screen.

mod bars;
mod controls;
mod draw;
mod error;
mod events;
mod explained;
mod frame;
mod layout;
mod look;
mod once;
mod panels;
mod screen;
mod shown;
mod status;
mod watching;
mod words;

#[cfg(test)]
mod tests;

pub use error::TopError;
pub use look::Look;
pub use once::{FrameSize, once};
pub use watching::watch;
