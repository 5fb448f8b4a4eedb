//! One file per format.

pub mod arrow;
pub mod lines;
pub mod npy;
pub mod tokens;

mod problem;
#[cfg(test)]
mod testing;

pub use arrow::ArrowFile;
pub use lines::Lines;
pub use npy::Npy;
pub use tokens::{TokenForm, Tokens};
